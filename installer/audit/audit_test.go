package audit

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	certutil "k8s.io/client-go/util/cert"

	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/host/ledger"
	"airlift/installer/node"
	"airlift/installer/pki"
	"airlift/scripts/fixtures/testhost"
	"airlift/scripts/oracle"
)

// numbers of the benchmark: how many checks a section has, and how many of them are automated.
var sectionsOf = map[string][2]int{
	"1.1": {21, 17}, "1.2": {30, 22}, "1.3": {7, 6}, "1.4": {2, 2}, "2": {7, 6}, "3.1": {3, 0}, "3.2": {2, 0},
	"4.1": {10, 6}, "4.2": {14, 5}, "4.3": {1, 1}, "5.1": {13, 0}, "5.2": {12, 0}, "5.3": {2, 0}, "5.4": {2, 0}, "5.5": {1, 0}, "5.6": {4, 0},
}

func TestNumbers(t *testing.T) {
	counts := map[string][2]int{}
	seen := map[string]bool{}
	last := "0"
	stig := regexp.MustCompile(`^V-2[4-7][0-9]{4}$`)
	for _, c := range Checks() {
		section := c.ID[:strings.LastIndex(c.ID, ".")]
		n := counts[section]
		n[0]++
		if c.Automated {
			n[1]++
		}
		counts[section] = n
		if seen[c.ID] || Compare(last, c.ID) >= 0 {
			t.Errorf("%s after %s", c.ID, last)
		}
		seen[c.ID], last = true, c.ID
		if c.Title == "" || c.Want == "" || c.judge == nil || c.Since < oldest || c.Place == "" {
			t.Errorf("%s is incomplete", c.ID)
		}
		for _, id := range c.STIG {
			if !stig.MatchString(id) {
				t.Errorf("%s: %s", c.ID, id)
			}
		}
	}
	total := [2]int{}
	for section, want := range sectionsOf {
		total[0], total[1] = total[0]+want[0], total[1]+want[1]
		if counts[section] != want {
			t.Errorf("section %s has %v checks, want %v", section, counts[section], want)
		}
	}
	if len(seen) != 131 || total != [2]int{131, 65} {
		t.Errorf("%d checks, %v", len(seen), total)
	}
}

// A tree is a directory with the files of a node, whose owners are in a table: only root could set them.
type tree struct {
	t      *testing.T
	h      *host.Host
	owners map[string][2]uint32
}

func (n *tree) path(name string) string { return n.h.Path(name) }

func (n *tree) write(name, text string, mode os.FileMode) {
	n.t.Helper()
	testhost.Write(n.t, n.path(name), text, mode)
	if err := os.Chmod(n.path(name), mode); err != nil {
		n.t.Fatal(err)
	}
}

func (n *tree) mkdir(name string, mode os.FileMode) {
	n.t.Helper()
	if err := os.MkdirAll(n.path(name), mode); err != nil {
		n.t.Fatal(err)
	}
	n.chmod(name, mode)
}

func (n *tree) chmod(name string, mode os.FileMode) {
	n.t.Helper()
	if err := os.Chmod(n.path(name), mode); err != nil {
		n.t.Fatal(err)
	}
}

// edit replaces a text in a file, which must have it.
func (n *tree) edit(name, old, new string) {
	n.t.Helper()
	data := testhost.Read(n.t, n.path(name))
	if !strings.Contains(data, old) {
		n.t.Fatalf("%s has no %q:\n%s", name, old, data)
	}
	if err := os.WriteFile(n.path(name), []byte(strings.ReplaceAll(data, old, new)), 0o600); err != nil {
		n.t.Fatal(err)
	}
}

// flag sets a flag of a static pod; "" removes it.
func (n *tree) flag(component, flag, value string) {
	n.t.Helper()
	file := config.ManifestsDir + "/" + component + ".yaml"
	data := testhost.Read(n.t, n.path(file))
	line := regexp.MustCompile(`(?m)^ *- --` + flag + `=.*\n`)
	text := line.ReplaceAllString(data, "")
	if value != "" {
		text = strings.Replace(text, "    - "+component+"\n", "    - "+component+"\n    - --"+flag+"="+value+"\n", 1)
	}
	if text == data {
		n.t.Fatalf("%s: %s is as before", component, flag)
	}
	if err := os.WriteFile(n.path(file), []byte(text), 0o600); err != nil {
		n.t.Fatal(err)
	}
}

func (n *tree) reader() *Reader {
	return &Reader{
		Host: n.h,
		owners: func(name string) (uid, gid uint32, err error) {
			o := n.owners[name]
			return o[0], o[1], nil
		},
		dial: func(context.Context, string) (*cluster.Client, error) { return nil, nil },
	}
}

// facts returns the facts of the tree and of a cluster.
func (n *tree) facts(o *objects) *facts {
	n.t.Helper()
	f, err := n.reader().gather(n.t.Context())
	if err != nil {
		n.t.Fatal(err)
	}
	f.objects = o
	return f
}

// verdicts judges all checks.
func (n *tree) verdicts(o *objects) map[string]Result {
	n.t.Helper()
	f, all := n.facts(o), map[string]Result{}
	for _, c := range Checks() {
		all[c.ID] = f.result(c)
	}
	return all
}

const etcdUser = 2379

const kubeletYAML = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: /etc/kubernetes/pki/ca.crt}}
authorization: {mode: Webhook}
rotateCertificates: true
serverTLSBootstrap: true
streamingConnectionIdleTimeout: 5m0s
tlsCipherSuites: [TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256]
podPidsLimit: 4096
seccompDefault: true
`

const auditPolicyYAML = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: None, users: ["system:kube-proxy"], verbs: [watch]}
- level: Metadata
  resources: [{group: "", resources: [secrets, configmaps, serviceaccounts/token]}, {group: authentication.k8s.io, resources: [tokenreviews]}]
- {level: RequestResponse, resources: [{group: "", resources: [pods, "pods/*"]}]}
- {level: Metadata}
`

const encryptionYAML = `apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - secretbox: {keys: [{name: key1, secret: c2VjcmV0LXRoYXQtbm9ib2R5LW1heS1zZWUhISE=}]}
  - identity: {}
`

// hardened is a control plane on which every check of sections 1 to 4 passes, but the two that are by design.
func hardened(t *testing.T) *tree {
	t.Helper()
	h, cfg := testhost.ControlPlane(t, func(c *config.Config) {
		c.KubernetesVersion = "v1.37.1"
		c.Images = map[string]string{"etcd": "etcd:3.7.0-0", "kube-apiserver": "registry/kube-apiserver:v1.37.1", "kube-controller-manager": "c:v1.37.1", "kube-scheduler": "s:v1.37.1"}
	})
	n := &tree{t, h, map[string][2]uint32{"/var/lib/etcd": {etcdUser, etcdUser}}}
	for _, build := range []func() (pki.Result, error){
		func() (pki.Result, error) { return pki.Ensure(cfg, os.DirFS(h.Path("/")), time.Now()) },
		func() (pki.Result, error) { return pki.Kubeconfigs(cfg, os.DirFS(h.Path("/")), time.Now()) },
	} {
		made, err := build()
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range made.Files {
			mode := os.FileMode(0o600)
			if strings.HasSuffix(file.Path, ".crt") {
				mode = 0o644
			}
			n.write(file.Path, string(file.Data), mode)
		}
	}
	n.write("/etc/passwd", "root:x:0:0::/:\netcd:x:2379:2379::/:\nmail:x:8:8::/:\n", 0o644)
	n.write("/etc/group", "root:x:0:\netcd:x:2379:\nmail:x:8:\n", 0o644)
	n.write("/etc/kubernetes/kubelet.conf", "kind: Config\n", 0o600)
	n.mkdir("/var/lib/etcd", 0o700)
	n.write("/etc/cni/net.d/10-flannel.conflist", "{}", 0o600)
	n.write("/var/lib/kubelet/config.yaml", kubeletYAML, 0o600)
	n.write("/var/lib/kubelet/kubeadm-flags.env", "KUBELET_KUBEADM_ARGS=\"\"\n", 0o644)
	n.write("/var/lib/kubelet/pki/kubelet-server-current.pem", "x", 0o600)
	n.write("/etc/systemd/system/kubelet.service", "[Service]\n", 0o600)
	n.write("/etc/systemd/system/kubelet.service.d/10-kubeadm.conf", "[Service]\n", 0o600)
	n.write("/etc/kubernetes/pki/audit-policy.yaml", auditPolicyYAML, 0o600)
	n.write("/etc/kubernetes/pki/encryption.yaml", encryptionYAML, 0o600)
	for flag, value := range map[string]string{
		"profiling": "false", "audit-log-path": "/var/log/audit.log", "audit-log-maxage": "30", "audit-log-maxbackup": "10", "audit-log-maxsize": "100",
		"audit-policy-file": "/etc/kubernetes/pki/audit-policy.yaml", "encryption-provider-config": "/etc/kubernetes/pki/encryption.yaml",
		"kubelet-certificate-authority": "/etc/kubernetes/pki/ca.crt", "service-account-extend-token-expiration": "false",
		"enable-admission-plugins": "NodeRestriction,EventRateLimit,DenyServiceExternalIPs", "tls-cipher-suites": wantedCiphers,
	} {
		n.flag(apiServer, flag, value)
	}
	n.flag(controllerManager, "profiling", "false")
	n.flag(controllerManager, "terminated-pod-gc-threshold", "1000")
	n.flag(scheduler, "profiling", "false")
	return n
}

// byDesign are the checks that even a hardened node does not pass.
var byDesign = []string{"1.2.1", "1.2.11", "5.1.7"}

func TestHardened(t *testing.T) {
	for id, r := range hardened(t).verdicts(clean()) {
		want := Passed
		switch {
		case slices.Contains(byDesign, id):
			want = ByDesign
		case id == "4.1.3" || id == "4.1.4" || id == "5.2.10":
			want = NotApplicable
		case id == "3.1.1" || id == "5.4.2" || id == "5.5.1":
			want = Judge
		}
		if r.Verdict != want {
			t.Errorf("%+v", r)
		}
		if (r.Verdict == ByDesign || r.Verdict == NotApplicable || r.Verdict == Judge) && r.Reason == "" {
			t.Errorf("%s has no reason", id)
		}
	}
}

// TestKubeletsOwnCertificate: a running kubelet reports the certificate that it signed itself as if it were a configured one.
func TestKubeletsOwnCertificate(t *testing.T) {
	n := hardened(t)
	own, _, err := certutil.GenerateSelfSignedCertKey("one", nil, nil) // as the kubelet does
	if err != nil {
		t.Fatal(err)
	}
	n.write("/var/lib/kubelet/pki/kubelet.crt", string(own), 0o644)
	for file, want := range map[string]Verdict{"/var/lib/kubelet/pki/kubelet.crt": Failed, "/etc/kubernetes/pki/apiserver.crt": Passed, "/var/lib/kubelet/pki/missing.crt": Failed} {
		n.write("/var/lib/kubelet/config.yaml", kubeletYAML+"tlsCertFile: "+file+"\ntlsPrivateKeyFile: /x.key\n", 0o600)
		if r := n.verdicts(clean())["4.2.9"]; r.Verdict != want {
			t.Errorf("%s: %+v", file, r)
		}
	}
}

// TestEachBreak: one wrong value fails exactly one check, or all checks of the same value.
func TestEachBreak(t *testing.T) {
	manifests := config.ManifestsDir + "/"
	flag := func(component, name, value string) func(*tree) {
		return func(n *tree) { n.flag(component, name, value) }
	}
	wide := func(file string, mode os.FileMode) func(*tree) { return func(n *tree) { n.chmod(file, mode) } }
	others := func(file string) func(*tree) { return func(n *tree) { n.owners[file] = [2]uint32{0, 8} } }
	kubelet := func(old, new string) func(*tree) {
		return func(n *tree) { n.edit("/var/lib/kubelet/config.yaml", old, new) }
	}
	written := func(text string) func(*tree) {
		return func(n *tree) {
			n.write("/var/lib/kubelet/kubeadm-flags.env", "KUBELET_KUBEADM_ARGS=\""+text+"\"\n", 0o644)
		}
	}
	proxy := func(n *tree) { n.write("/etc/kubernetes/kube-proxy.conf", "x", 0o644) }
	for _, c := range []struct {
		ids   string
		apply func(*tree)
	}{
		{"1.1.1", wide(manifests+"kube-apiserver.yaml", 0o640)}, {"1.1.2", others(manifests + "kube-apiserver.yaml")},
		{"1.1.3", wide(manifests+"kube-controller-manager.yaml", 0o604)}, {"1.1.4", others(manifests + "kube-controller-manager.yaml")},
		{"1.1.5", wide(manifests+"kube-scheduler.yaml", 0o700)}, {"1.1.6", others(manifests + "kube-scheduler.yaml")},
		{"1.1.7", wide(manifests+"etcd.yaml", 0o644)}, {"1.1.8", others(manifests + "etcd.yaml")},
		{"1.1.7", func(n *tree) { n.write(manifests+"etcd.yaml.old", "x", 0o644) }},
		{"1.1.9", wide("/etc/cni/net.d/10-flannel.conflist", 0o644)}, {"1.1.10", others("/etc/cni/net.d/10-flannel.conflist")},
		{"1.1.11", wide("/var/lib/etcd", 0o750)}, {"1.1.12", others("/var/lib/etcd")},
		{"1.1.13", wide("/etc/kubernetes/super-admin.conf", 0o640)}, {"1.1.14", others("/etc/kubernetes/admin.conf")},
		{"1.1.15", wide("/etc/kubernetes/scheduler.conf", 0o640)}, {"1.1.16", others("/etc/kubernetes/scheduler.conf")},
		{"1.1.17", wide("/etc/kubernetes/controller-manager.conf", 0o640)}, {"1.1.18", others("/etc/kubernetes/controller-manager.conf")},
		{"1.1.19", others("/etc/kubernetes/pki/etcd/server.key")}, {"1.1.19 4.1.8", others("/etc/kubernetes/pki/ca.crt")}, {"1.1.20 4.1.7", wide("/etc/kubernetes/pki/ca.crt", 0o664)}, {"1.1.21", wide("/etc/kubernetes/pki/etcd/server.key", 0o640)},

		{"1.2.2", flag(apiServer, "token-auth-file", "/etc/tokens.csv")},
		{"1.2.3", flag(apiServer, "enable-admission-plugins", "NodeRestriction,EventRateLimit")},
		{"1.2.4", flag(apiServer, "kubelet-client-key", "")}, {"1.2.5", flag(apiServer, "kubelet-certificate-authority", "")},
		{"1.2.6", flag(apiServer, "authorization-mode", "Node,RBAC,AlwaysAllow")}, {"1.2.6 1.2.7 1.2.8", flag(apiServer, "authorization-mode", "")},
		{"1.2.7", flag(apiServer, "authorization-mode", "RBAC")}, {"1.2.8", flag(apiServer, "authorization-mode", "Node,ABAC")},
		{"1.2.9", flag(apiServer, "enable-admission-plugins", "NodeRestriction,DenyServiceExternalIPs")},
		{"1.2.10", flag(apiServer, "enable-admission-plugins", "NodeRestriction,EventRateLimit,DenyServiceExternalIPs,AlwaysAdmit")},
		{"1.2.12", flag(apiServer, "disable-admission-plugins", "ServiceAccount")}, {"1.2.13", flag(apiServer, "disable-admission-plugins", "NamespaceLifecycle")},
		{"1.2.14", flag(apiServer, "enable-admission-plugins", "EventRateLimit,DenyServiceExternalIPs")},
		{"1.2.15", flag(apiServer, "profiling", "")}, {"1.2.15", flag(apiServer, "profiling", "true")},
		{"1.2.16 1.2.17 1.2.18 1.2.19", flag(apiServer, "audit-log-path", "")}, {"1.2.17", flag(apiServer, "audit-log-maxage", "29")}, {"1.2.18", flag(apiServer, "audit-log-maxbackup", "9")}, {"1.2.19", flag(apiServer, "audit-log-maxsize", "0")},
		{"", flag(apiServer, "audit-log-maxsize", "")}, // v1.37 has a default
		{"1.2.20", flag(apiServer, "request-timeout", "1h")}, {"1.2.21", flag(apiServer, "service-account-lookup", "false")}, {"1.2.22", flag(apiServer, "service-account-key-file", "")},
		{"1.2.23", flag(apiServer, "etcd-certfile", "")}, {"1.2.24", flag(apiServer, "tls-private-key-file", "")}, {"1.2.25", flag(apiServer, "client-ca-file", "")}, {"1.2.26", flag(apiServer, "etcd-cafile", "")},
		{"1.2.27 1.2.28", flag(apiServer, "encryption-provider-config", "")},
		{"1.2.28", func(n *tree) {
			n.edit("/etc/kubernetes/pki/encryption.yaml", "  - secretbox", "  - identity: {}\n  - secretbox")
		}},
		{"1.2.29", flag(apiServer, "tls-cipher-suites", "")}, {"1.2.29", flag(apiServer, "tls-cipher-suites", "TLS_RSA_WITH_3DES_EDE_CBC_SHA")},
		{"1.2.30", flag(apiServer, "service-account-extend-token-expiration", "")},

		{"1.3.1", flag(controllerManager, "terminated-pod-gc-threshold", "")}, {"1.3.2", flag(controllerManager, "profiling", "")}, {"1.3.3", flag(controllerManager, "use-service-account-credentials", "")},
		{"1.3.4", flag(controllerManager, "service-account-private-key-file", "")}, {"1.3.5", flag(controllerManager, "root-ca-file", "")},
		{"1.3.6", flag(controllerManager, "feature-gates", "RotateKubeletServerCertificate=false")}, {"1.3.7", flag(controllerManager, "bind-address", "")},
		{"1.4.1", flag(scheduler, "profiling", "true")}, {"1.4.2", flag(scheduler, "bind-address", "0.0.0.0")},

		{"2.1", flag("etcd", "cert-file", "")}, {"2.2", flag("etcd", "client-cert-auth", "")}, {"2.3", flag("etcd", "auto-tls", "true")},
		{"2.4", flag("etcd", "peer-key-file", "")}, {"2.5", flag("etcd", "peer-client-cert-auth", "false")}, {"2.6", flag("etcd", "peer-auto-tls", "true")},
		{"2.7", func(n *tree) {
			n.write("/etc/kubernetes/pki/etcd/ca.crt", testhost.Read(n.t, n.path("/etc/kubernetes/pki/ca.crt")), 0o644)
		}},

		{"3.2.1 3.2.2", flag(apiServer, "audit-policy-file", "")},
		{"3.2.2", func(n *tree) {
			n.edit("/etc/kubernetes/pki/audit-policy.yaml", "secrets, configmaps, ", "configmaps, ")
			n.edit("/etc/kubernetes/pki/audit-policy.yaml", "- {level: Metadata}", "- {level: Request}")
		}},
		{"3.2.2", func(n *tree) { n.edit("/etc/kubernetes/pki/audit-policy.yaml", "- {level: Metadata}\n", "") }},

		{"4.1.1", wide("/etc/systemd/system/kubelet.service.d/10-kubeadm.conf", 0o644)}, {"4.1.2", others("/etc/systemd/system/kubelet.service")},
		{"4.1.3", proxy}, {"4.1.4 4.1.3", func(n *tree) { proxy(n); others("/etc/kubernetes/kube-proxy.conf")(n) }},
		{"4.1.5", wide("/etc/kubernetes/kubelet.conf", 0o644)}, {"4.1.6", others("/etc/kubernetes/kubelet.conf")},
		{"4.1.9", wide("/var/lib/kubelet/config.yaml", 0o644)}, {"4.1.10", others("/var/lib/kubelet/config.yaml")},
		{"4.2.1", kubelet("anonymous: {enabled: false}", "anonymous: {enabled: true}")}, {"4.2.1", written("--anonymous-auth")},
		{"4.2.2", kubelet("mode: Webhook", "mode: AlwaysAllow")}, {"4.2.3", kubelet("x509: {clientCAFile: /etc/kubernetes/pki/ca.crt}", "x509: {}")},
		{"4.2.4", kubelet("podPidsLimit", "readOnlyPort: 10255\npodPidsLimit")}, {"4.2.4", written("--read-only-port=10255")},
		{"", kubelet("5m0s", "0s")}, // the kubelet replaces it by four hours
		{"4.2.5", kubelet("5m0s", "-1s")}, {"4.2.6", kubelet("podPidsLimit", "makeIPTablesUtilChains: false\npodPidsLimit")},
		{"4.2.7", written("--hostname-override=x")}, {"4.2.8", kubelet("podPidsLimit", "eventRecordQPS: 0\npodPidsLimit")},
		{"4.2.9", kubelet("serverTLSBootstrap: true\n", "")}, {"4.2.10", kubelet("rotateCertificates: true\n", "")},
		{"4.2.11", kubelet("podPidsLimit", "featureGates: {RotateKubeletServerCertificate: false}\npodPidsLimit")},
		{"4.2.12", kubelet("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "TLS_RSA_WITH_AES_128_CBC_SHA")}, {"4.2.13", kubelet("podPidsLimit: 4096", "podPidsLimit: -1")}, {"4.2.14", kubelet("seccompDefault: true\n", "")},
	} {
		n := hardened(t)
		c.apply(n)
		var failed []string
		all := n.verdicts(clean())
		for id, r := range all {
			if r.Verdict == Failed {
				failed = append(failed, id)
				if r.Fix == "" || r.Found == "" {
					t.Errorf("%s has no fix, or no evidence: %+v", id, r)
				}
			} else if r.Verdict == Judge && !(id == "2.7" && c.ids == "1.2.25") && !slices.Contains([]string{"3.1.1", "5.4.2", "5.5.1"}, id) {
				t.Errorf("%s: %+v", c.ids, r)
			}
		}
		want := strings.Fields(c.ids)
		slices.Sort(failed)
		slices.Sort(want)
		if !slices.Equal(failed, want) {
			t.Errorf("failed %v, want %v", failed, want)
		}
		n.fix(all, want)
	}
}

// fix types the commands that the checks print, if they are for this host, and audits again.
func (n *tree) fix(all map[string]Result, ids []string) {
	n.t.Helper()
	fixed := false
	for _, id := range ids {
		command := all[id].Fix
		if !strings.HasPrefix(command, "chmod ") && !strings.HasPrefix(command, "sed ") {
			return
		}
		fixed = true
		command = regexp.MustCompile(` (/(?:etc|var)/)`).ReplaceAllString(command, " "+n.path("/")+"$1")
		if out, err := exec.Command("sh", "-c", command).CombinedOutput(); err != nil {
			n.t.Errorf("%s: %v\n%s", command, err, out)
		}
	}
	if !fixed {
		return
	}
	for id, r := range n.verdicts(clean()) {
		if r.Verdict == Failed {
			n.t.Errorf("%s is not fixed by %q: %s", id, all[id].Fix, r.Found)
		}
	}
}

// known are the automated checks that a cluster of plain kubeadm fails.
var known = []string{"1.1.12", "1.2.15", "1.2.16", "1.2.17", "1.2.18", "1.2.19", "1.2.30", "1.2.5", "1.3.2", "1.4.1", "4.1.1", "4.1.9"}

// TestFixesCanBeRun: a fix is a reconfiguration where Airlift may change the node, and a change of its manifest elsewhere. Commands that change a
// node ask the same.
func TestFixesCanBeRun(t *testing.T) {
	for name, record := range map[string]func(r *ledger.Records) error{
		"no ledger": func(*ledger.Records) error { return nil },
		"packages alone": func(r *ledger.Records) error {
			return r.Record(ledger.Entry{Kind: ledger.Package, Name: "chrony", Package: &ledger.PackageVersions{Manager: "dpkg", Version: "4"}})
		},
		"installed": func(r *ledger.Records) error {
			return r.Record(ledger.Entry{Kind: ledger.Owned, Name: "/etc/kubernetes"})
		},
		"adopted, and nothing changed": func(r *ledger.Records) error { return r.Adopt(ledger.Adoption{}) },
	} {
		n := hardened(t)
		n.flag(scheduler, "profiling", "true")
		n.h = testhost.Open(t, n.path("/"))
		if err := record(n.h.Records()); err != nil {
			t.Fatal(err)
		}
		fix := n.verdicts(clean())["1.4.1"].Fix
		if reconfigures := strings.Contains(fix, "./install reconfigure"); fix == "" || reconfigures != (node.Managed(n.h, "") == nil) {
			t.Errorf("%s: %q, and changes of the node: %v", name, fix, node.Managed(n.h, ""))
		}
	}
}

// TestKubeadm: of what real kubeadm writes, with the modes that it writes, exactly the known checks fail.
func TestKubeadm(t *testing.T) {
	for _, version := range oracle.Versions {
		made := oracle.Run(t, oracle.Cases(version)[0])
		n := &tree{t, testhost.Open(t, t.TempDir()), map[string][2]uint32{}}
		err := filepath.WalkDir(made.Dir, func(file string, entry os.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			info, err := entry.Info()
			if err != nil {
				return err
			}
			data, err := os.ReadFile(file)
			name := strings.TrimPrefix(file, made.Dir)
			place := config.CertificatesDir + name
			switch base := filepath.Base(name); {
			case strings.HasSuffix(base, ".conf"):
				place = config.KubernetesDir + "/" + base
			case base == "config.yaml", base == "kubeadm-flags.env", base == "instance-config.yaml":
				place = "/var/lib/kubelet/" + base
			case strings.HasSuffix(base, ".yaml"):
				place = config.ManifestsDir + "/" + base
			}
			n.write(place, string(data), info.Mode().Perm())
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		n.mkdir("/var/lib/etcd", 0o700)
		n.write("/usr/lib/systemd/system/kubelet.service", "[Service]\n", 0o644) // as the packages do
		n.write("/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf", "[Service]\n", 0o644)
		o := clean()
		o.proxy = ""
		for _, object := range made.Objects {
			if text := string(object); strings.Contains(text, "name: kube-proxy\n") && strings.Contains(text, "kind: ConfigMap\n") {
				o.proxy = configMap(t, object)["config.conf"]
			}
		}
		if o.proxy == "" {
			t.Fatal("kubeadm has no configuration of kube-proxy")
		}
		var failed []string
		for id, r := range n.verdicts(o) {
			if r.Verdict == Failed && r.Automated {
				failed = append(failed, id)
			} else if r.Automated && r.Verdict != Passed {
				t.Errorf("%s: %+v", version, r)
			}
		}
		slices.Sort(failed)
		if !slices.Equal(failed, known) {
			t.Errorf("%s: failed %v, want %v", version, failed, known)
		}
	}
}

// TestWorker: a worker judges only itself, and reports what is left.
func TestWorker(t *testing.T) {
	n := hardened(t)
	for _, name := range []string{"/etc/kubernetes/manifests", "/etc/kubernetes/admin.conf"} {
		if err := os.RemoveAll(n.path(name)); err != nil {
			t.Fatal(err)
		}
	}
	r, err := n.reader().Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Results) != 25 || r.Role != "worker" || !strings.HasPrefix(r.Left, "106 checks are not judged on this host") || !r.Passed() {
		t.Errorf("%d results of a %s, left: %q, failed: %d, unread %q", len(r.Results), r.Role, r.Left, r.Counts[Failed], r.Unread)
	}
	const conf = "/var/lib/kubelet/pods/a/volumes/kubernetes.io~configmap/kube-proxy/config.conf"
	n.write(conf, "metricsBindAddress: 0.0.0.0:10249\n", 0o644)
	if r, err = n.reader().Read(t.Context()); err != nil || r.Counts[Failed] != 1 {
		t.Errorf("%v, %d failed", err, r.Counts[Failed])
	}
}

// TestNoSecrets: keys of the encryption configuration and values of unknown flags are nowhere in a report.
func TestNoSecrets(t *testing.T) {
	n := hardened(t)
	n.flag(apiServer, "token-auth-file", "https://user:s3cret@host/x")
	n.edit("/etc/kubernetes/pki/encryption.yaml", "providers:", "providers: {c2VjcmV0LXRoYXQtbm9ib2R5:")
	f := n.facts(clean())
	var all []Result
	for _, c := range Checks() {
		all = append(all, f.result(c))
	}
	data, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"c2VjcmV0", "s3cret"} {
		if strings.Contains(string(data), secret) {
			t.Errorf("the report has %q", secret)
		}
	}
}

// TestExternalEtcd: without etcd's manifest, its checks are not applicable.
func TestExternalEtcd(t *testing.T) {
	n := hardened(t)
	if err := os.Remove(n.path(config.ManifestsDir + "/etcd.yaml")); err != nil {
		t.Fatal(err)
	}
	count := 0
	for id, r := range n.verdicts(clean()) {
		if r.Verdict == Failed {
			t.Errorf("%+v", r)
		}
		if strings.HasPrefix(id, "2.") || slices.Contains(ofEtcd, id) {
			if count++; r.Verdict != NotApplicable {
				t.Errorf("%+v", r)
			}
		}
	}
	if count != 11 {
		t.Errorf("%d checks of etcd", count)
	}
}

// TestOddManifests: what cannot be known is left to a person, and is no result.
func TestOddManifests(t *testing.T) {
	for name, edit := range map[string]func(*tree){
		"a shell": func(n *tree) {
			n.edit(config.ManifestsDir+"/kube-apiserver.yaml", "    - kube-apiserver\n", "    - /bin/sh\n")
		},
		"damaged": func(n *tree) { n.edit(config.ManifestsDir+"/kube-apiserver.yaml", "spec:", "spec: {") },
	} {
		n := hardened(t)
		edit(n)
		if r := n.verdicts(clean())["1.2.15"]; r.Verdict != Judge || r.Reason == "" {
			t.Errorf("%s: %+v", name, r)
		}
	}
	n := hardened(t) // words that flag parsers accept
	n.flag(scheduler, "profiling", "")
	n.edit(config.ManifestsDir+"/kube-scheduler.yaml", "    - --bind-address=127.0.0.1\n", "    - --bind_address\n    - 127.0.0.1\n    - --profiling=true\n    - --profiling=false\n")
	for _, id := range []string{"1.4.1", "1.4.2"} {
		if r := n.verdicts(clean())[id]; r.Verdict != Passed {
			t.Errorf("%+v", r)
		}
	}
}

// TestDocumented: docs/audit.md has each field of the documents, and each check that is by design.
func TestDocumented(t *testing.T) {
	page := testhost.Read(t, "../../docs/audit.md")
	for _, of := range []any{Report{}, Result{}, Site{}, HostReport{}} {
		for i := range reflect.TypeOf(of).NumField() {
			name, _, _ := strings.Cut(reflect.TypeOf(of).Field(i).Tag.Get("json"), ",")
			if !strings.Contains(page, "`"+name+"`") {
				t.Errorf("docs/audit.md does not have the field %s of %T", name, of)
			}
		}
	}
	for _, id := range byDesign {
		if !strings.Contains(page, "| "+id+" ") {
			t.Errorf("docs/audit.md does not have the reason of %s", id)
		}
	}
	for _, id := range known {
		if id < "1.2.16" || id > "1.2.18" { // a range
			if !strings.Contains(page, id) {
				t.Errorf("docs/audit.md does not list %s", id)
			}
		}
	}
}
