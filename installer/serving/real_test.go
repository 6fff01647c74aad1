package serving

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/pki"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/testcluster"
	"airlift/scripts/fixtures/testcluster/testclient"
	"airlift/scripts/oracle"
)

func TestMain(m *testing.M) { testcluster.Main(m) }

const address, foreign = "192.0.2.21", "192.0.2.22"

// A cluster has a real API server, and a controller manager that signs what is approved.
type realCluster struct {
	*testcluster.ControlPlane
	api   kubernetes.Interface
	super *cluster.Client
	log   bytes.Buffer
	count int
}

func startCluster(t *testing.T, version string) *realCluster {
	p := testcluster.StartVersion(t, version)
	c := &realCluster{ControlPlane: p, api: p.API(t), super: testclient.Super(t, p)}
	testclient.Initialized(t, p)
	testcluster.Must(c.super.Apply(t.Context(), Objects()...))(t)
	c.node(t, "cp1", testcluster.DocumentationAddress)
	c.node(t, "w2", foreign)
	return c
}

// settings are those of the control plane cp1.
func (c *realCluster) settings() *Settings {
	s := &Settings{Node: "cp1", Server: "https://" + c.Endpoint(), CertificatesDir: c.Config.CertificatesDir}
	for _, r := range c.Config.Networking.Ranges() {
		s.Ranges = append(s.Ranges, r.Prefix)
	}
	return s
}

// record records addresses, as an administrator does on cp1.
func (c *realCluster) record(t *testing.T, node string, addresses ...string) error {
	t.Helper()
	certificate := filepath.Join(c.Config.CertificatesDir, "apiserver.crt")
	root := fstest.MapFS{
		SettingsPath[1:]: {Data: testcluster.Must(c.settings().Files())(t)[0].Data}, certificate[1:]: {Data: testcluster.Must(os.ReadFile(certificate))(t)},
	}
	return testcluster.Error(SetAddresses(t.Context(), c.super, root, node, addresses))
}

// approver returns the process of the control plane cp1.
func (c *realCluster) approver(t *testing.T) *Approver {
	addresses := func() ([]net.Addr, error) {
		var list []net.Addr
		for _, text := range []string{testcluster.DocumentationAddress + "/24", "127.0.0.1/8", "10.244.0.1/24", "fe80::1/64"} {
			ip, n, err := net.ParseCIDR(text)
			if err != nil {
				return nil, err
			}
			list = append(list, &net.IPNet{IP: ip, Mask: n.Mask})
		}
		return list, nil
	}
	a := newApprover(c.settings(), os.DirFS("/"), addresses, slog.New(slog.NewTextHandler(&c.log, nil)))
	a.credentials = func() ([]string, error) { return []string{ownCredential}, nil }
	return a
}

func (c *realCluster) round(t *testing.T, a *Approver) {
	t.Helper()
	if _, _, err := a.round(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// node registers a node with the status that its kubelet reports.
func (c *realCluster) node(t *testing.T, name string, addresses ...string) {
	t.Helper()
	c.AddNode(t, name, true)
	n := testcluster.Must(c.api.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{}))(t)
	for _, a := range addresses {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	testcluster.Must(c.api.CoreV1().Nodes().UpdateStatus(t.Context(), n, metav1.UpdateOptions{}))(t)
}

// eventually repeats a check until it succeeds, also on a machine that has much else to do.
func eventually(t *testing.T, check func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !check(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it did not happen")
		}
	}
}

// as returns a client of a user, as the API server sees it.
func (c *realCluster) as(t *testing.T, user string, groups ...string) kubernetes.Interface {
	t.Helper()
	cfg := testcluster.Must(clientcmd.BuildConfigFromFlags("", c.Super))(t)
	cfg.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
	return testcluster.Must(kubernetes.NewForConfig(cfg))(t)
}

// A wish is what a client requests. The kubelet of a node makes the one that kubelets make.
type wish struct {
	user     string
	groups   []string
	signer   string
	usages   []certificatesv1.KeyUsage
	template x509.CertificateRequest
	// credential is what API servers of newer versions add to the request.
	credential string
}

const ownCredential = "X509SHA256=11"

func wishOf(node string, addresses ...string) *wish {
	w := &wish{
		user: nodeUser + node, groups: []string{nodesGroup}, signer: certificatesv1.KubeletServingSignerName,
		usages:   []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth},
		template: x509.CertificateRequest{Subject: pkix.Name{CommonName: nodeUser + node, Organization: []string{nodesGroup}}, DNSNames: []string{node}},
	}
	return w.at(addresses...)
}

func (w *wish) at(addresses ...string) *wish {
	w.template.IPAddresses = nil
	for _, a := range addresses {
		w.template.IPAddresses = append(w.template.IPAddresses, net.IP(netip.MustParseAddr(a).AsSlice()))
	}
	return w
}

// request sends a wish, and returns the name of the request. It is "" if the API server itself refuses it.
func (c *realCluster) request(t *testing.T, w *wish) string {
	t.Helper()
	key := testcluster.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	der := testcluster.Must(x509.CreateCertificateRequest(rand.Reader, &w.template, key))(t)
	c.count++
	csr := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("csr-%d", c.count)},
		Spec:       certificatesv1.CertificateSigningRequestSpec{Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), SignerName: w.signer, Usages: w.usages},
	}
	cfg := testcluster.Must(clientcmd.BuildConfigFromFlags("", c.Super))(t)
	cfg.Impersonate = rest.ImpersonationConfig{UserName: w.user, Groups: w.groups}
	if w.credential != "" {
		cfg.Impersonate.Extra = map[string][]string{credentialKey: {w.credential}}
	}
	_, err := testcluster.Must(kubernetes.NewForConfig(cfg))(t).CertificatesV1().CertificateSigningRequests().Create(t.Context(), csr, metav1.CreateOptions{})
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	return csr.Name
}

func (c *realCluster) approved(t *testing.T, name string) bool {
	t.Helper()
	r := testcluster.Must(c.api.CertificatesV1().CertificateSigningRequests().Get(t.Context(), name, metav1.GetOptions{}))(t)
	return len(r.Status.Conditions) > 0
}

// signed waits for the certificate of a request, and compares it with the CA.
func (c *realCluster) signed(t *testing.T, name, dns, ip string) {
	t.Helper()
	var data []byte
	eventually(t, func() bool {
		data = testcluster.Must(c.api.CertificatesV1().CertificateSigningRequests().Get(t.Context(), name, metav1.GetOptions{}))(t).Status.Certificate
		return len(data) > 0
	})
	block, _ := pem.Decode(data)
	cert := testcluster.Must(x509.ParseCertificate(block.Bytes))(t)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(testcluster.Must(os.ReadFile(filepath.Join(c.Config.CertificatesDir, "ca.crt")))(t))
	for _, host := range []string{dns, ip} {
		if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, DNSName: host, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
}

// wrong are requests of w1, each with one thing that is wrong.
func wrong(t *testing.T) map[string]*wish {
	list := map[string]*wish{}
	add := func(name string, change func(*wish)) {
		w := wishOf("w1", address)
		change(w)
		list[name] = w
	}
	add("another node's subject", func(w *wish) { w.template.Subject.CommonName = nodeUser + "w2" })
	add("another node's request", func(w *wish) { w.user = nodeUser + "w2" })
	add("a person's request", func(w *wish) { w.user, w.groups = "kubernetes-admin", []string{"kubeadm:cluster-admins"} })
	add("a token's request", func(w *wish) {
		w.user, w.groups = "system:bootstrap:abcdef", []string{"system:bootstrappers", "system:bootstrappers:kubeadm:default-node-token"}
	})
	add("another group", func(w *wish) { w.template.Subject.Organization = []string{"system:masters"} })
	add("one more group", func(w *wish) { w.template.Subject.Organization = []string{nodesGroup, "system:masters"} })
	add("no group", func(w *wish) { w.template.Subject.Organization = nil })
	add("a unit in the subject", func(w *wish) { w.template.Subject.OrganizationalUnit = []string{"x"} })
	add("an e-mail address", func(w *wish) { w.template.EmailAddresses = []string{"a@example.com"} })
	add("a URI", func(w *wish) { w.template.URIs = []*url.URL{{Scheme: "spiffe", Host: "a"}} })
	add("a CA", func(w *wish) {
		w.template.ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 19}, Value: []byte{0x30, 0x03, 0x01, 0x01, 0xff}}}
	})
	add("nothing", func(w *wish) { w.template.DNSNames = nil; w.at() })
	add("another signer", func(w *wish) { w.signer = certificatesv1.KubeAPIServerClientSignerName })
	add("usage of clients", func(w *wish) { w.usages[1] = certificatesv1.UsageClientAuth })
	add("usage of clients, too", func(w *wish) { w.usages = append(w.usages, certificatesv1.UsageClientAuth) })
	add("usage of a CA", func(w *wish) { w.usages = append(w.usages, certificatesv1.UsageCertSign) })
	add("no usage of servers", func(w *wish) { w.usages = w.usages[:1] })
	for _, name := range []string{"*", "*.w1", "w2", "cp1", "kubernetes", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", "w1.example", "W1"} {
		add("the name "+name, func(w *wish) { w.template.DNSNames = []string{name} })
		add("one more name "+name, func(w *wish) { w.template.DNSNames = append(w.template.DNSNames, name) })
	}
	for _, a := range []string{foreign, testcluster.DocumentationAddress, "10.96.0.1", "10.111.0.9", "10.244.3.4", "127.0.0.1", "::1", "169.254.1.1", "fe80::1", "224.0.0.1", "0.0.0.0", "255.255.255.255", "::ffff:" + foreign} {
		add("the address "+a, func(w *wish) { w.at(a) })
		add("one more address "+a, func(w *wish) { w.at(address, a) })
	}
	add("no Node", func(w *wish) { *w = *wishOf("w9", "192.0.2.29") })
	return list
}

// refuse sends all wrong requests, and wants that none is approved.
func (c *realCluster) refuse(t *testing.T, a *Approver, list map[string]*wish) {
	t.Helper()
	sent := map[string]string{}
	for what, w := range list {
		if name := c.request(t, w); name != "" {
			sent[name] = what
		}
	}
	if len(sent) < len(list)*3/4 {
		t.Errorf("the API server refused all but %d of %d", len(sent), len(list))
	}
	c.round(t, a)
	c.round(t, a)
	for name, what := range sent {
		if c.approved(t, name) {
			t.Errorf("%s: approved", what)
		}
		if err := c.api.CertificatesV1().CertificateSigningRequests().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRequests: with real API servers, nothing is approved that has one wrong thing, neither before nor after the first right
// request, which the cluster signs.
func TestRequests(t *testing.T) {
	for _, version := range oracle.Versions {
		t.Run(version, func(t *testing.T) {
			c := startCluster(t, version)
			a := c.approver(t)
			c.node(t, "w1", address)
			c.refuse(t, a, wrong(t))
			if s := testcluster.Must(Read(t.Context(), c.super, "w1"))(t); s.Recorded != nil {
				t.Errorf("a refused request left the record %q", s.Recorded)
			}
			first := c.request(t, wishOf("w1", address))
			c.round(t, a)
			c.signed(t, first, "w1", address)
			c.refuse(t, a, wrong(t))

			// A renewal needs no other decision; another address waits for an administrator.
			again := c.request(t, wishOf("w1", address))
			c.round(t, a)
			c.signed(t, again, "w1", address)
			moved := c.request(t, wishOf("w1", "192.0.2.77"))
			before := strings.Count(c.log.String(), "192.0.2.77 is not an address")
			c.round(t, a)
			c.round(t, a)
			if n := strings.Count(c.log.String(), "192.0.2.77 is not an address"); c.approved(t, moved) || n != before+1 {
				t.Errorf("a new address: approved: %t, in the log %d times:\n%s", c.approved(t, moved), n-before, &c.log)
			}
			if s := testcluster.Must(Read(t.Context(), c.super, "w1"))(t); !slices.Equal(s.Recorded, []string{address}) || len(s.Waiting) != 1 || !slices.Equal(s.Waiting[0].Wants, []string{"192.0.2.77", "w1"}) {
				t.Errorf("%+v", s)
			}
			if err := c.record(t, "w1", "192.0.2.77"); err != nil {
				t.Fatal(err)
			}
			c.round(t, a)
			c.signed(t, moved, "w1", "192.0.2.77")

			c.ownNode(t, a)
			c.joins(t, a)
			c.together(t)
			c.permissions(t, a)
			c.watched(t)
		})
	}
}

// ownNode: a control plane knows its own addresses, and has no others.
func (c *realCluster) ownNode(t *testing.T, a *Approver) {
	own := c.request(t, wishOf("cp1", testcluster.DocumentationAddress))
	c.round(t, a)
	c.signed(t, own, "cp1", testcluster.DocumentationAddress)
	list := map[string]*wish{}
	for _, address := range []string{foreign, "127.0.0.1", "10.244.0.1", "10.96.0.1", "fe80::1"} {
		list["of cp1: "+address] = wishOf("cp1", address)
	}
	// Another certificate with the name of this node, from a bootstrap token.
	other := wishOf("cp1", testcluster.DocumentationAddress)
	other.credential = "X509SHA256=00"
	list["another certificate"] = other
	c.refuse(t, a, list)
	other.credential = ownCredential
	own = c.request(t, other)
	c.round(t, a)
	c.signed(t, own, "cp1", testcluster.DocumentationAddress)
	// Also if it is recorded, another control plane does not decide about it.
	if err := c.record(t, "cp1", "192.0.2.99"); err != nil {
		t.Fatal(err)
	}
	a.settings.Node = "cp2"
	c.refuse(t, a, map[string]*wish{"by another control plane": wishOf("cp1", "192.0.2.99")})
	a.settings.Node = "cp1"
	for node, addresses := range map[string][]string{
		"w1": {testcluster.DocumentationAddress, "10.96.0.1", "10.111.0.9", "10.244.3.4", "192.0.2.99", "w2", "cp1", "kubernetes", "kubernetes.default.svc"},
		"w9": {"192.0.2.77"}, "kubernetes.default": {"192.0.2.78"}, "cp1": {testcluster.DocumentationAddress, "192.0.2.77"},
	} {
		for _, address := range addresses {
			if err := c.record(t, node, "192.0.2.78", address); fault.ExitCode(err) != fault.Preflight || fault.Hint(err) == "" {
				t.Errorf("%s of %s: %v", address, node, err)
			}
		}
	}

	for _, f := range testcluster.Must(pki.KubeletClient(c.Config, os.DirFS("/"), time.Now()))(t).Files {
		if f.Link != "" {
			continue
		}
		file := filepath.Join(c.Dir, f.Path)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, f.Data, 0o600); err != nil {
			t.Fatal(err)
		}
		if certs, err := pki.ParseCertificates(f.Data); err == nil {
			defer func() {
				if got := testcluster.Must(kubeletCredentials(os.DirFS(c.Dir)))(t); !slices.Equal(got, []string{fmt.Sprintf("X509SHA256=%x", sha256.Sum256(certs[0].Raw))}) {
					t.Errorf("%q", got)
				}
			}()
		}
	}
}

// joins: a record that was written before a node joins decides, one of a removed node does not, and an old node without a record
// gets none by itself.
func (c *realCluster) joins(t *testing.T, a *Approver) {
	ctx := t.Context()
	if err := c.record(t, "w3", "192.0.2.23", "w3.example"); err != nil {
		t.Fatal(err)
	}
	if err := c.record(t, "w8", "w3.example"); !strings.Contains(fault.Hint(err), `{"data":{"w3":null}}`) {
		t.Error(err, fault.Hint(err))
	}
	c.node(t, "w4", "192.0.2.24")
	c.node(t, "w3", "192.0.2.33")
	c.refuse(t, a, map[string]*wish{
		"w3 with another address":             wishOf("w3", "192.0.2.33"),
		"w4 with the address of w3":           wishOf("w4", "192.0.2.23"),
		"w4 with what w3 says that it has":    wishOf("w4", "192.0.2.33"),
		"w4 with a name that was given to w3": func() *wish { w := wishOf("w4", "192.0.2.24"); w.template.DNSNames = []string{"w3.example"}; return w }(),
	})
	named := wishOf("w3", "192.0.2.23")
	named.template.DNSNames = append(named.template.DNSNames, "w3.example")
	name := c.request(t, named)
	c.round(t, a)
	c.signed(t, name, "w3.example", "192.0.2.23")

	if err := c.api.CoreV1().Nodes().Delete(ctx, "w3", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.node(t, "w3", "192.0.2.43")
	old := a.now
	a.now = func() time.Time { return time.Now().Add(joinTime + time.Minute) }
	c.refuse(t, a, map[string]*wish{"an old node": wishOf("w3", "192.0.2.43")})
	a.now = old
	c.refuse(t, a, map[string]*wish{"a name of the removed node": named})
	name = c.request(t, wishOf("w3", "192.0.2.43"))
	c.round(t, a)
	c.signed(t, name, "w3", "192.0.2.43")
	c.node(t, "kubernetes.default", "192.0.2.50") // a token may join with any free name
	c.refuse(t, a, map[string]*wish{"a node with a name of the API servers": wishOf("kubernetes.default", "192.0.2.50")})
}

// together: control planes that judge at the same time do not give one address to two nodes, and agree about all others.
func (c *realCluster) together(t *testing.T) {
	const n = 8
	var requests []string
	for i := range n {
		c.node(t, fmt.Sprintf("t%d", i))
		requests = append(requests, c.request(t, wishOf(fmt.Sprintf("t%d", i), "192.0.2.90")))
		c.node(t, fmt.Sprintf("u%d", i))
		requests = append(requests, c.request(t, wishOf(fmt.Sprintf("u%d", i), fmt.Sprintf("198.51.100.%d", i+1))))
	}
	var group sync.WaitGroup
	for range 3 {
		a := c.approver(t)
		a.log = slog.New(slog.DiscardHandler)
		group.Go(func() {
			for range 3 * n { // a conflict ends one request's turn, not the round
				if _, soon, err := a.round(t.Context()); err != nil {
					t.Error(err)
				} else if !soon {
					return
				}
			}
		})
	}
	group.Wait()
	same, others := 0, 0
	for i, name := range requests {
		switch {
		case !c.approved(t, name):
		case i%2 == 0:
			same++
		default:
			others++
		}
	}
	if same != 1 || others != n {
		t.Errorf("one address was given to %d nodes, and %d of %d others were approved", same, others, n)
	}
}

// permissions: no node can write the record, or approve, or remove its Node to get a new record. The process can do nothing else.
func (c *realCluster) permissions(t *testing.T, a *Approver) {
	ctx, kubelet := t.Context(), c.as(t, nodeUser+"w1", nodesGroup)
	maps, csrs := kubelet.CoreV1().ConfigMaps(metav1.NamespaceSystem), kubelet.CertificatesV1().CertificateSigningRequests()
	m := testcluster.Must(c.api.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, recordMap, metav1.GetOptions{}))(t)
	csr := testcluster.Must(c.api.CertificatesV1().CertificateSigningRequests().Get(ctx, c.request(t, wishOf("w1", foreign)), metav1.GetOptions{}))(t)
	csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "x"}}
	fresh := m.DeepCopy()
	fresh.ResourceVersion = ""
	for what, err := range map[string]error{
		"update":         testcluster.Error(maps.Update(ctx, m, metav1.UpdateOptions{})),
		"patch":          testcluster.Error(maps.Patch(ctx, recordMap, types.MergePatchType, []byte(`{"data":{"w1":"{}"}}`), metav1.PatchOptions{})),
		"delete":         maps.Delete(ctx, recordMap, metav1.DeleteOptions{}),
		"create":         testcluster.Error(maps.Create(ctx, fresh, metav1.CreateOptions{})),
		"approve":        testcluster.Error(csrs.UpdateApproval(ctx, csr.Name, csr, metav1.UpdateOptions{})),
		"delete itself":  kubelet.CoreV1().Nodes().Delete(ctx, "w1", metav1.DeleteOptions{}),
		"delete another": kubelet.CoreV1().Nodes().Delete(ctx, "w2", metav1.DeleteOptions{}),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("a kubelet can %s: %v", what, err)
		}
	}
	client := testcluster.Must(a.connect())(t)
	for want, list := range map[bool][]authorizationv1.ResourceAttributes{
		true: {
			{Verb: "update", Group: "certificates.k8s.io", Resource: "certificatesigningrequests", Subresource: "approval"},
			{Verb: "approve", Group: "certificates.k8s.io", Resource: "signers", Name: certificatesv1.KubeletServingSignerName},
			{Verb: "update", Resource: "configmaps", Namespace: metav1.NamespaceSystem, Name: recordMap},
		},
		false: {
			{Verb: "approve", Group: "certificates.k8s.io", Resource: "signers", Name: certificatesv1.KubeAPIServerClientSignerName},
			{Verb: "approve", Group: "certificates.k8s.io", Resource: "signers", Name: certificatesv1.KubeAPIServerClientKubeletSignerName},
			{Verb: "update", Resource: "configmaps", Namespace: metav1.NamespaceSystem, Name: "kubeadm-config"},
			{Verb: "get", Resource: "secrets", Namespace: metav1.NamespaceSystem}, {Verb: "create", Resource: "pods", Namespace: "default"}, {Verb: "update", Resource: "nodes"},
			{Verb: "create", Group: "certificates.k8s.io", Resource: "certificatesigningrequests", Subresource: "approval"},
		},
	} {
		for _, r := range list {
			review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &r}}
			review = testcluster.Must(client.API.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{}))(t)
			if review.Status.Allowed != want {
				t.Errorf("the process may %+v: %t, want %t", r, review.Status.Allowed, want)
			}
		}
	}
}

// watched: the running process approves a request that is made while it watches, and one whose Node follows it.
func (c *realCluster) watched(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	a := c.approver(t)
	group.Go(func() { a.run(ctx) })
	defer group.Wait()
	defer cancel()
	early := c.request(t, wishOf("v1", "192.0.2.61"))
	time.Sleep(time.Second)
	c.node(t, "v1", "192.0.2.61")
	eventually(t, func() bool { return c.approved(t, early) })
	c.node(t, "v2", "192.0.2.62")
	time.Sleep(3 * time.Second) // it watches
	late := c.request(t, wishOf("v2", "192.0.2.62"))
	eventually(t, func() bool { return c.approved(t, late) })
}

// TestSettings: the process reads what init wrote.
func TestSettings(t *testing.T) {
	c := &config.Config{LocalAPIEndpoint: config.APIEndpoint{AdvertiseAddress: address, BindPort: 6443}, Facts: config.Facts{Hostname: "cp1", NodeIP: address}}
	c.CNI, c.KubernetesVersion = "flannel", oracle.Newest
	c.CompleteInit()
	files := testcluster.Must(For(c).Files())(t)
	s := testcluster.Must(decode(files[0].Data))(t)
	if s.Node != "cp1" || s.Server != "https://"+address+":6443" || s.CertificatesDir != "/etc/kubernetes/pki" || fmt.Sprint(s.Ranges) != "[10.96.0.0/12 10.244.0.0/16]" {
		t.Errorf("%+v", s)
	}
	if files[0].Path != "/etc/kubernetes/serving.yaml" || files[1].Path != "/etc/systemd/system/airlift-serving.service" {
		t.Error(files[0].Path, files[1].Path)
	}
	for _, bad := range []string{"", "x", "node: a\n"} {
		if _, err := decode([]byte(bad)); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}
