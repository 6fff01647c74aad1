package discovery

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"airlift/scripts/fixtures/testcluster/testclient"

	"airlift/installer/cluster"
	"airlift/scripts/fixtures/port"
	"airlift/scripts/fixtures/testcluster"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cluster-bootstrap/token/jws"
	kubeproxyv1 "k8s.io/kube-proxy/config/v1alpha1"

	"airlift/installer/config"
	"airlift/installer/pki"
	"airlift/installer/render"
	"airlift/internal/fault"
)

// expect fails unless err is a DiscoveryError with this reason and a hint, and
// contains all of want.
func expect(t *testing.T, err error, reason Reason, want ...string) {
	t.Helper()
	var refused *Error
	if !errors.As(err, &refused) || refused.Reason != reason {
		t.Errorf("got %v, want a %s", err, reason)
		return
	}
	if fault.Hint(err) == "" {
		t.Errorf("%v: no hint", err)
	}
	for _, s := range want {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("%q lacks %q", err, s)
		}
	}
}

func TestRealDiscovery(t *testing.T) {
	p := testcluster.Start(t)
	ctx := testcluster.Within(t)
	admin := testclient.Initialized(t, p)
	token := testcluster.JoinToken("discov." + "0123456789abcdef")
	testcluster.Must(admin.EnsureTokens(ctx, []config.BootstrapToken{token}))(t)
	hash := testcluster.Must(pki.CAHashes(admin.CA))(t)[0]
	good := config.Discovery{Token: token.Token, APIServerEndpoint: p.Endpoint(), CACertHashes: []string{hash}, Timeout: 20 * time.Second}
	// The first call waits until the controller manager has signed
	// cluster-info.
	found := testcluster.Must(Find(ctx, good, nil))(t)
	if found.Server != "https://"+p.Endpoint() || string(found.CA) != string(admin.CA) || len(found.Warnings) > 0 {
		t.Errorf("found %+v", found)
	}

	t.Run("bootstrap identity is enough", func(t *testing.T) {
		boot := testcluster.Must(cluster.New(found.Kubeconfig, ""))(t)
		ipvs := *p.Config
		ipvs.KubeProxy = &kubeproxyv1.KubeProxyConfiguration{Mode: "ipvs", IPVS: kubeproxyv1.KubeProxyIPVSConfiguration{Scheduler: "lc"}}
		testcluster.Must(admin.Apply(ctx, testcluster.Must(render.KubeProxy(&ipvs))(t)...))(t)
		t.Cleanup(func() { admin.Apply(context.Background(), testcluster.Must(render.KubeProxy(p.Config))(t)...) })
		fetched := testcluster.Must(boot.FetchConfig(ctx))(t)
		if proxy := fetched.KubeProxy; proxy == nil || proxy.Mode != "ipvs" || proxy.IPVS.Scheduler != "lc" {
			t.Errorf("fetched kube-proxy's configuration: %+v", proxy)
		}
		if fetched.Cluster.KubernetesVersion != testcluster.Version || fetched.Cluster.Networking.PodSubnet.String() != "10.244.0.0/16" || len(fetched.Warnings) > 0 {
			t.Errorf("fetched %+v", fetched)
		}
		if !strings.Contains(string(fetched.Kubelet), "kind: KubeletConfiguration") {
			t.Errorf("kubelet config: %s", fetched.Kubelet)
		}
		if err := boot.NodeObjects().CheckNodeNameFree(ctx, "nobody-has-it"); err != nil {
			t.Error(err)
		}
		p.AddNode(t, "taken", true)
		err := boot.NodeObjects().CheckNodeNameFree(ctx, "taken")
		if err == nil || !strings.Contains(err.Error(), `already has a Ready node named "taken"`) || !strings.Contains(fault.Hint(err), "--node-name") {
			t.Errorf("taken name: %v", err)
		}
		p.AddNode(t, "gone", false)
		if err := boot.NodeObjects().CheckNodeNameFree(ctx, "gone"); err != nil {
			t.Errorf("name of a node that is not Ready: %v", err)
		}
	})
	t.Run("the address passed is kept", func(t *testing.T) {
		d := good
		_, port, _ := net.SplitHostPort(p.Endpoint())
		d.APIServerEndpoint = "localhost:" + port
		if found := testcluster.Must(Find(ctx, d, nil))(t); found.Server != "https://localhost:"+port || !strings.Contains(string(found.Kubeconfig), "https://localhost:"+port) {
			t.Errorf("found %+v", found)
		}
	})
	t.Run("any of several pins", func(t *testing.T) {
		d := good
		d.CACertHashes = []string{"sha256:" + strings.Repeat("0", 64), "SHA256:" + strings.ToUpper(strings.TrimPrefix(hash, "sha256:"))}
		testcluster.Must(Find(ctx, d, nil))(t)
	})
	t.Run("wrong pin", func(t *testing.T) {
		d := good
		d.CACertHashes = []string{"sha256:" + strings.Repeat("0", 64)}
		expect(t, testcluster.Error(Find(ctx, d, nil)), CAMismatch, strings.Repeat("0", 64), hash)
	})
	t.Run("no pin", func(t *testing.T) {
		d := good
		d.CACertHashes = nil
		expect(t, testcluster.Error(Find(ctx, d, nil)), Malformed)
		d.UnsafeSkipCAVerification = true
		if found := testcluster.Must(Find(ctx, d, nil))(t); len(found.Warnings) != 1 {
			t.Errorf("warnings: %q", found.Warnings)
		}
	})
	t.Run("unknown token", func(t *testing.T) {
		d := good
		d.Token = "nobody.0123456789abcdef"
		start := time.Now()
		expect(t, testcluster.Error(Find(ctx, d, nil)), TokenUnknown, `"nobody"`, "expired")
		if took := time.Since(start); took < signerGrace { // it may have been signed later
			t.Errorf("took %s", took)
		}
	})
	t.Run("wrong secret", func(t *testing.T) {
		d := good
		d.Token = "discov.0000000000000000"
		expect(t, testcluster.Error(Find(ctx, d, func(s string) { t.Errorf("waits: %s", s) })), TokenWrong, `"discov"`)
	})
	t.Run("expired token", func(t *testing.T) {
		d := good
		short := testcluster.JoinToken("expire.0123456789abcdef")
		short.TTL, short.Expires = 0, time.Now().Add(8*time.Second)
		testcluster.Must(admin.EnsureTokens(ctx, []config.BootstrapToken{short}))(t)
		d.Token = short.Token
		testcluster.Must(Find(ctx, d, nil))(t)
		time.Sleep(time.Until(short.Expires) + time.Second)
		expect(t, testcluster.Error(Find(ctx, d, nil)), TokenUnknown, "expired")
	})
	t.Run("file", func(t *testing.T) {
		info := testcluster.Must(admin.API.CoreV1().ConfigMaps("kube-public").Get(ctx, "cluster-info", metav1.GetOptions{}))(t)
		file := filepath.Join(t.TempDir(), "info.conf")
		write := func(data []byte) {
			t.Helper()
			if err := os.WriteFile(file, data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write([]byte(info.Data["kubeconfig"]))
		d := config.Discovery{File: file, Timeout: 10 * time.Second}
		expect(t, testcluster.Error(Find(ctx, d, nil)), NoCredentials, file)
		d.TLSBootstrapToken = token.Token
		found := testcluster.Must(Find(ctx, d, nil))(t)
		testcluster.Must(testcluster.Must(cluster.New(found.Kubeconfig, ""))(t).FetchConfig(ctx))(t)

		write(found.Kubeconfig) // the file contains its credentials
		d.TLSBootstrapToken = ""
		found = testcluster.Must(Find(ctx, d, nil))(t)
		testcluster.Must(testcluster.Must(cluster.New(found.Kubeconfig, ""))(t).FetchConfig(ctx))(t)

		write([]byte("no kubeconfig"))
		expect(t, testcluster.Error(Find(ctx, d, nil)), Malformed, file)
		d.File = filepath.Join(t.TempDir(), "absent")
		expect(t, testcluster.Error(Find(ctx, d, nil)), Malformed, d.File)
	})
}

func TestMalformedDiscoveryIsRefusedAtOnce(t *testing.T) {
	pin := "sha256:" + strings.Repeat("a", 64)
	twice := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(twice, []byte("apiVersion: v1\nkind: Config\nclusters: []\nclusters: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, d := range map[string]config.Discovery{
		"token":        {Token: "short", APIServerEndpoint: "192.0.2.1:6443", CACertHashes: []string{pin}},
		"upper case":   {Token: "SECRET.9999888877776666", APIServerEndpoint: "192.0.2.1:6443", CACertHashes: []string{pin}},
		"no port":      {Token: "secret.9999888877776666", APIServerEndpoint: "192.0.2.1", CACertHashes: []string{pin}},
		"a URL":        {Token: "secret.9999888877776666", APIServerEndpoint: "https://192.0.2.1:6443", CACertHashes: []string{pin}},
		"bad port":     {Token: "secret.9999888877776666", APIServerEndpoint: "192.0.2.1:70000", CACertHashes: []string{pin}},
		"short hash":   {Token: "secret.9999888877776666", APIServerEndpoint: "192.0.2.1:6443", CACertHashes: []string{"sha256:abcd"}},
		"other hash":   {Token: "secret.9999888877776666", APIServerEndpoint: "192.0.2.1:6443", CACertHashes: []string{"md5:" + strings.Repeat("a", 64)}},
		"no hex":       {Token: "secret.9999888877776666", APIServerEndpoint: "192.0.2.1:6443", CACertHashes: []string{"sha256:" + strings.Repeat("x", 64)}},
		"a key twice":  {File: twice, TLSBootstrapToken: "secret.9999888877776666"},
		"no algorithm": {Token: "secret.9999888877776666", APIServerEndpoint: "192.0.2.1:6443", CACertHashes: []string{strings.Repeat("a", 64)}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Find(context.Background(), d, nil)
			expect(t, err, Malformed)
			if fault.ExitCode(err) != fault.Usage {
				t.Errorf("exit code %d", fault.ExitCode(err))
			}
			if strings.Contains(err.Error(), "9999888877776666") {
				t.Errorf("%v tells the token's secret", err)
			}
		})
	}
}

// An impostor is a server that answers like an API server, with a certificate
// and content that the test chooses.
type impostor struct {
	ca     *x509.Certificate
	caKey  *ecdsa.PrivateKey
	leaf   x509.Certificate // template
	date   time.Time        // date of its answers; zero: the current time
	answer func(w http.ResponseWriter, r *http.Request)
}

const impostorToken = "impost.0123456789abcdef"

func newCA(t *testing.T) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key := testcluster.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kubernetes"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-10000 * time.Hour), NotAfter: time.Now().Add(10000 * time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der := testcluster.Must(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))(t)
	return testcluster.Must(x509.ParseCertificate(der))(t), key
}

func certPEM(cert *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})
}

func bundleOf(cas ...*x509.Certificate) []byte {
	var list []byte
	for _, ca := range cas {
		list = append(list, certPEM(ca)...)
	}
	return list
}

func newImpostor(t *testing.T) *impostor {
	ca, key := newCA(t)
	return &impostor{ca: ca, caKey: key, leaf: x509.Certificate{
		SerialNumber: big.NewInt(2), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}}
}

// serve starts the server and returns the Discovery that fits it.
func (i *impostor) serve(t *testing.T) config.Discovery {
	t.Helper()
	key := testcluster.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	der := testcluster.Must(x509.CreateCertificate(rand.Reader, &i.leaf, i.ca, key.Public(), i.caKey))(t)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !i.date.IsZero() {
			w.Header().Set("Date", i.date.UTC().Format(http.TimeFormat))
		}
		i.answer(w, r)
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	return config.Discovery{
		Token: impostorToken, APIServerEndpoint: server.Listener.Addr().String(),
		CACertHashes: []string{pinOf(i.ca)}, Timeout: 2 * time.Second,
	}
}

// clusterInfoAnswer answers with a signed cluster-info that lists the CAs.
func clusterInfoAnswer(t *testing.T, cas ...*x509.Certificate) http.HandlerFunc {
	kubeconfig := string(pki.ClusterInfoKubeconfig("https://192.0.2.1:6443", bundleOf(cas...)))
	id, secret, _ := strings.Cut(impostorToken, ".")
	signature := testcluster.Must(jws.ComputeDetachedSignature(kubeconfig, id, secret))(t)
	return func(w http.ResponseWriter, r *http.Request) {
		json.NewEncoder(w).Encode(corev1.ConfigMap{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			Data:     map[string]string{"kubeconfig": kubeconfig, "jws-kubeconfig-" + id: signature},
		})
	}
}

func TestDiscoveryRefusesWrongServers(t *testing.T) {
	ctx := context.Background()
	t.Run("the impostor would do", func(t *testing.T) {
		i := newImpostor(t)
		i.answer = clusterInfoAnswer(t, i.ca)
		if found := testcluster.Must(Find(ctx, i.serve(t), nil))(t); len(found.Warnings) > 0 {
			t.Errorf("warnings: %q", found.Warnings)
		}
	})
	t.Run("replayed cluster-info", func(t *testing.T) {
		i := newImpostor(t)
		theirs, _ := newCA(t)
		i.answer = clusterInfoAnswer(t, theirs) // signed, as copied from the real cluster
		d := i.serve(t)
		d.CACertHashes = []string{pinOf(theirs)}
		expect(t, testcluster.Error(Find(ctx, d, nil)), CertificateInvalid, "not signed by the cluster's CA")
	})
	t.Run("two answers", func(t *testing.T) {
		i, n := newImpostor(t), 0
		first := clusterInfoAnswer(t, i.ca)
		i.answer = func(w http.ResponseWriter, r *http.Request) {
			if n++; n > 1 {
				json.NewEncoder(w).Encode(corev1.ConfigMap{TypeMeta: metav1.TypeMeta{Kind: "ConfigMap"}, Data: map[string]string{"kubeconfig": "another"}})
				return
			}
			first(w, r)
		}
		expect(t, testcluster.Error(Find(ctx, i.serve(t), nil)), Tampered)
	})
	t.Run("other names", func(t *testing.T) {
		i := newImpostor(t)
		i.leaf.IPAddresses, i.leaf.DNSNames = nil, []string{"cp.example"}
		i.answer = clusterInfoAnswer(t, i.ca)
		expect(t, testcluster.Error(Find(ctx, i.serve(t), nil)), CertificateInvalid, "other names")
	})
	t.Run("expired certificate", func(t *testing.T) {
		i := newImpostor(t)
		i.leaf.NotBefore, i.leaf.NotAfter = time.Now().Add(-48*time.Hour), time.Now().Add(-24*time.Hour)
		i.answer = clusterInfoAnswer(t, i.ca)
		expect(t, testcluster.Error(Find(ctx, i.serve(t), nil)), CertificateInvalid, "has expired")
	})
	t.Run("our clock behind", func(t *testing.T) {
		i := newImpostor(t)
		i.date = time.Now().Add(30*time.Hour + 30*time.Minute)
		i.leaf.NotBefore, i.leaf.NotAfter = i.date.Add(-time.Hour), i.date.Add(time.Hour)
		i.answer = clusterInfoAnswer(t, i.ca)
		expect(t, testcluster.Error(Find(ctx, i.serve(t), nil)), ClockSkew, "behind", "30h")
	})
	t.Run("our clock ahead", func(t *testing.T) {
		i := newImpostor(t)
		i.date = time.Now().Add(-9600*time.Hour - time.Minute)
		i.leaf.NotBefore, i.leaf.NotAfter = i.date.Add(-time.Hour), i.date.Add(time.Hour)
		i.answer = clusterInfoAnswer(t, i.ca)
		expect(t, testcluster.Error(Find(ctx, i.serve(t), nil)), ClockSkew, "ahead of", "9600h")
	})
	t.Run("our clock too far behind for a kubelet certificate", func(t *testing.T) {
		i := newImpostor(t)
		i.date = time.Now().Add(10 * time.Minute)
		i.answer = clusterInfoAnswer(t, i.ca)
		expect(t, testcluster.Error(Find(ctx, i.serve(t), nil)), ClockSkew, "behind")
	})
	t.Run("our clock a little off", func(t *testing.T) {
		i := newImpostor(t)
		i.date = time.Now().Add(-10 * time.Minute)
		i.answer = clusterInfoAnswer(t, i.ca)
		found := testcluster.Must(Find(ctx, i.serve(t), nil))(t)
		if len(found.Warnings) != 1 || !strings.Contains(found.Warnings[0], "ahead of") {
			t.Errorf("warnings: %q", found.Warnings)
		}
	})
	for name, answer := range map[string]http.HandlerFunc{
		"a web site": func(w http.ResponseWriter, r *http.Request) { w.Write([]byte("<html>welcome</html>")) },
		"a 404":      http.NotFound,
		"a redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://192.0.2.1/", http.StatusFound)
		},
	} {
		t.Run(name, func(t *testing.T) {
			i := newImpostor(t)
			i.answer = answer
			expect(t, testcluster.Error(Find(ctx, i.serve(t), nil)), NotAPIServer, "is not a Kubernetes API server")
		})
	}
	t.Run("plain HTTP", func(t *testing.T) {
		server := httptest.NewServer(http.NotFoundHandler())
		defer server.Close()
		d := newImpostor(t).discovery(server.Listener.Addr().String())
		expect(t, testcluster.Error(Find(ctx, d, nil)), NotAPIServer, "does not use TLS")
	})
}

func (i *impostor) discovery(endpoint string) config.Discovery {
	return config.Discovery{Token: impostorToken, APIServerEndpoint: endpoint, CACertHashes: []string{pinOf(i.ca)}, Timeout: time.Second}
}

func TestDiscoveryTriesAgainWhatMayHeal(t *testing.T) {
	i := newImpostor(t)
	full, n := clusterInfoAnswer(t, i.ca), 0
	status := func(w http.ResponseWriter, code int, reason metav1.StatusReason) {
		w.WriteHeader(code)
		json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status"}, Reason: reason, Message: "no " + string(reason)})
	}
	i.answer = func(w http.ResponseWriter, r *http.Request) {
		switch n++; n {
		case 1:
			w.WriteHeader(http.StatusServiceUnavailable)
		case 2:
			status(w, http.StatusForbidden, metav1.StatusReasonForbidden)
		case 3:
			status(w, http.StatusNotFound, metav1.StatusReasonNotFound)
		case 4:
			json.NewEncoder(w).Encode(corev1.ConfigMap{TypeMeta: metav1.TypeMeta{Kind: "ConfigMap"}, Data: map[string]string{"kubeconfig": "unsigned"}})
		default:
			full(w, r)
		}
	}
	d := i.serve(t)
	d.Timeout = 30 * time.Second
	var states []string
	testcluster.Must(Find(context.Background(), d, func(s string) { states = append(states, s) }))(t)
	if len(states) != 4 || !strings.Contains(states[0], "503") || !strings.Contains(states[1], "Forbidden") || !strings.Contains(states[2], "NotFound") || !strings.Contains(states[3], "has no token with ID") {
		t.Errorf("states: %q", states)
	}
}

func TestDiscoveryTellsWhyAHostIsUnreachable(t *testing.T) {
	i := newImpostor(t)
	ctx := context.Background()
	ports := testcluster.Must(port.Free(1))(t)
	closed := net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[0]))
	start := time.Now()
	var states []string
	expect(t, testcluster.Error(Find(ctx, i.discovery(closed), func(s string) { states = append(states, s) })), Unreachable, closed, "connection refused")
	if took := time.Since(start); took < time.Second {
		t.Errorf("took %s", took)
	}
	if len(states) != 1 {
		t.Errorf("states: %q", states)
	}

	silent := testcluster.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer silent.Close()
	expect(t, testcluster.Error(Find(ctx, i.discovery(silent.Addr().String()), nil)), Unreachable, "no answer in time")

	// A name that never resolves (RFC 2606). The resolver reports that it is
	// unknown, or there is no name server to ask.
	expect(t, testcluster.Error(Find(ctx, i.discovery("cp.invalid:6443"), nil)), Unreachable, "cp.invalid")

	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if err := testcluster.Error(Find(cancelled, i.discovery(closed), nil)); fault.ExitCode(err) != fault.Interrupted {
		t.Errorf("cancelled: %v", err)
	}
}
