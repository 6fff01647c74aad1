package pki_test

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"airlift/installer/config"
	"airlift/installer/pki"
	"airlift/scripts/oracle"
)

// kubeadm runs real kubeadm with the node's root directory and returns its
// standard output.
func (n node) kubeadm(version string, args ...string) []byte {
	n.t.Helper()
	if err := os.MkdirAll(filepath.Join(n.root, "tmp"), 0o755); err != nil {
		n.t.Fatal(err)
	}
	cmd := exec.Command(oracle.Kubeadm(n.t, version), append([]string{"--rootfs", n.root}, args...)...)
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=/"}
	if os.Getuid() != 0 { // --rootfs is a chroot
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
		}
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		n.t.Fatalf("kubeadm %s: %v\n%s%s", strings.Join(args, " "), err, out, stderr.String())
	}
	return out
}

// configure writes kubeadm's configuration for testConfig's node.
func (n node) configure(version, cluster string) {
	n.t.Helper()
	api := config.APIVersion(version)
	n.write("/kubeadm.yaml", fmt.Appendf(nil, `apiVersion: kubeadm.k8s.io/%[1]s
kind: InitConfiguration
localAPIEndpoint: {advertiseAddress: 10.0.0.11}
nodeRegistration: {name: n1, criSocket: "unix:///run/containerd/containerd.sock"}
---
apiVersion: kubeadm.k8s.io/%[1]s
kind: ClusterConfiguration
kubernetesVersion: %[2]s
%[3]s
`, api, version, cluster))
}

// twin returns another node with copies of the files.
func (n node) twin() node {
	n.t.Helper()
	other := newNode(n.t)
	if out, err := exec.Command("cp", "-a", n.root+"/.", other.root).CombinedOutput(); err != nil {
		n.t.Fatalf("%v: %s", err, out)
	}
	return other
}

// withoutLinks removes the kubelet's files. kubeadm's certs commands do not use
// them, and their symbolic link would point out of the root directory.
func (n node) withoutLinks() node {
	n.remove("/var/lib/kubelet", "/etc/kubernetes/kubelet.conf")
	return n
}

func (n node) exists(path string) bool {
	_, err := os.Lstat(filepath.Join(n.root, path))
	return err == nil
}

// TestExpirationsEqualKubeadm runs kubeadm on files that Airlift created.
func TestExpirationsEqualKubeadm(t *testing.T) {
	type row struct {
		Name              string
		ExpirationDate    time.Time
		ExternallyManaged bool
		CAName            string
		Missing           bool
	}
	rows := func(held []pki.Expiration) (list []row) {
		for _, h := range held {
			r := row{Name: h.Name, ExpirationDate: h.NotAfter, ExternallyManaged: h.External, CAName: h.CA, Missing: h.Missing}
			if h.Missing {
				r.CAName = "" // kubeadm leaves it out in this case
			}
			list = append(list, r)
		}
		return list
	}
	for _, test := range []struct {
		name    string
		cluster string
		cfg     func(*config.Config)
		made    time.Time
		spoil   func(node)
	}{
		{name: "plain"},
		{name: "own periods", cfg: func(c *config.Config) {
			c.CertificateValidityPeriod, c.CACertificateValidityPeriod = 49*time.Hour, 50*24*time.Hour
		}},
		{name: "expired", made: time.Now().Add(-400 * 24 * time.Hour)},
		{name: "external CA", spoil: func(n node) { n.remove(dir + "ca.key") }},
		{name: "external CAs for etcd and the front proxy", spoil: func(n node) { n.remove(dir+"etcd/ca.key", dir+"front-proxy-ca.key") }},
		{name: "missing files", spoil: func(n node) {
			n.remove("/etc/kubernetes/super-admin.conf", dir+"front-proxy-client.crt", dir+"front-proxy-client.key")
		}},
		{name: "external etcd", cluster: "etcd: {external: {endpoints: [https://10.0.0.9:2379], caFile: /e/ca, certFile: /e/c, keyFile: /e/k}}",
			cfg: func(c *config.Config) {
				c.Etcd.External = &config.ExternalEtcd{Endpoints: []string{"https://10.0.0.9:2379"}, CAFile: "/e/ca", CertFile: "/e/c", KeyFile: "/e/k"}
			}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			oracle.Kubeadm(t, "v1.37.1") // before the work that it is compared with
			n := newNode(t)
			cfg := testConfig()
			if test.cfg != nil {
				test.cfg(cfg)
			}
			if test.made.IsZero() {
				test.made = time.Now()
			}
			n.init(cfg, test.made)
			if test.spoil != nil {
				test.spoil(n)
			}
			n.configure("v1.37.1", test.cluster)
			var want struct{ Certificates, CertificateAuthorities []row }
			if err := json.Unmarshal(n.kubeadm("v1.37.1", "certs", "check-expiration", "--config", "/kubeadm.yaml", "-o", "json"), &want); err != nil {
				t.Fatal(err)
			}
			certs, cas, err := pki.Expirations(cfg, n.fs())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want.Certificates, rows(certs)); diff != "" {
				t.Errorf("certificates (-kubeadm +ours):\n%s", diff)
			}
			if diff := cmp.Diff(want.CertificateAuthorities, rows(cas)); diff != "" {
				t.Errorf("CAs (-kubeadm +ours):\n%s", diff)
			}
			var names []string
			for _, c := range want.Certificates {
				names = append(names, c.Name)
			}
			if test.cluster == "" && !slices.Equal(names, pki.RenewableNames()) {
				t.Errorf("kubeadm renews %v, we renew %v", names, pki.RenewableNames())
			}
			// This version prints only text.
			n.configure("v1.29.15", test.cluster)
			text := string(n.kubeadm("v1.29.15", "certs", "check-expiration", "--config", "/kubeadm.yaml"))
			for _, c := range certs {
				line := c.Name + " "
				if c.Missing {
					line = "!MISSING! " + c.Name
				}
				if !strings.Contains(text, line) || !c.Missing && !strings.Contains(text, c.NotAfter.Format("Jan 02, 2006 15:04 MST")) {
					t.Errorf("kubeadm v1.29 does not show %s with the end %s:\n%s", c.Name, c.NotAfter, text)
				}
			}
		})
	}
}

// renewAll does the same as `certs renew all`.
func (n node) renewAll(cfg *config.Config, now time.Time) {
	n.t.Helper()
	for _, name := range pki.RenewableNames() {
		result, err := pki.Renew(cfg, n.fs(), now, name)
		if err != nil {
			n.t.Fatal(err)
		}
		for _, f := range result.Files {
			n.remove(f.Path)
			put(n.t, n.root, f)
		}
	}
}

// TestRenewEqualsKubeadm renews the same files with kubeadm and with Airlift.
func TestRenewEqualsKubeadm(t *testing.T) {
	for _, version := range oracle.Versions {
		for _, algorithm := range []string{"RSA-2048", "ECDSA-P256"} {
			t.Run(version+" "+algorithm, func(t *testing.T) {
				t.Parallel()
				oracle.Kubeadm(t, version) // before the keys are generated
				cfg := testConfig()
				cfg.KubernetesVersion, cfg.EncryptionAlgorithm = version, algorithm
				cfg.APIServer.CertSANs = []string{"api.example.com", "192.0.2.7", "2001:db8::7"}
				cluster := "encryptionAlgorithm: " + algorithm
				if cfg.Minor() < config.V1Beta4From {
					cluster = fmt.Sprintf("featureGates: {PublicKeysECDSA: %v}", algorithm != "RSA-2048")
				}
				ours := newNode(t)
				ours.configure(version, cluster)
				// The files are two years old: all certificates except the CAs
				// have expired.
				ours.init(cfg, time.Now().Add(-2*config.CertificateValidity))
				ours.withoutLinks()
				old, theirs := ours.twin(), ours.twin()

				began := time.Now()
				theirs.kubeadm(version, "certs", "renew", "all", "--config", "/kubeadm.yaml")
				plain := *cfg
				plain.APIServer.CertSANs = nil // the existing certificate is the source, not the configuration
				ours.renewAll(&plain, time.Now())

				for file := range ours.snapshot() {
					a, b := theirs.read(file), ours.read(file)
					switch ext := filepath.Ext(file); {
					case file == "/kubeadm.yaml":
					case strings.HasSuffix(file, "ca.crt") || strings.HasSuffix(file, "ca.key") || strings.HasPrefix(filepath.Base(file), "sa."):
						if !bytes.Equal(old.read(file), b) {
							t.Errorf("%s was changed", file)
						}
					case bytes.Equal(old.read(file), b):
						t.Errorf("%s was not renewed", file)
					case ext == ".crt":
						compareRenewed(t, version, began, file, certificate(t, a), certificate(t, b), true)
					case ext == ".key":
						compareKeys(t, file, a, b)
					case ext == ".conf":
						ka, kb := kubeconfig(t, a), kubeconfig(t, b)
						if diff := cmp.Diff(ka.withoutSecrets(t), kb.withoutSecrets(t)); diff != "" {
							t.Errorf("%s differs (-kubeadm +ours):\n%s", file, diff)
						}
						compareRenewed(t, version, began, file, certificate(t, decode64(t, ka.user(t)["client-certificate-data"])),
							certificate(t, decode64(t, kb.user(t)["client-certificate-data"])), true)
						compareKeys(t, file, decode64(t, ka.user(t)["client-key-data"]), decode64(t, kb.user(t)["client-key-data"]))
					default:
						t.Errorf("unexpected %s", file)
					}
					if ma, mb := theirs.mode(file), ours.mode(file); ma != mb {
						t.Errorf("%s has mode %v, kubeadm's %v", file, mb, ma)
					}
				}
				// After the renewal, init must find nothing to write.
				for _, build := range builders[:2] {
					result, err := build(cfg, ours.fs(), time.Now())
					if err != nil || len(result.Files) > 0 {
						t.Errorf("after the renewal: %v, to be written: %v", err, result.Files)
					}
				}
			})
		}
	}
}

func (n node) mode(path string) fs.FileMode {
	n.t.Helper()
	info, err := os.Stat(filepath.Join(n.root, path))
	if err != nil {
		n.t.Fatal(err)
	}
	return info.Mode()
}

// compareRenewed is compareCerts for certificates of an old CA. NotBefore is
// five minutes before the renewal, which began then, in newer kubeadms, and the CA's
// NotBefore in older ones and in Airlift: see oracle.Differences.
func compareRenewed(t *testing.T, version string, began time.Time, name string, theirs, ours *x509.Certificate, sameKind bool) {
	t.Helper()
	if oracle.Differs(version, "a certificate becomes valid at the same time as its CA") {
		if made := theirs.NotBefore.Add(5 * time.Minute); made.Before(began.Truncate(time.Second)) || made.After(time.Now()) {
			t.Errorf("%s: kubeadm's begins at %s, the renewal began at %s", name, theirs.NotBefore, began)
		}
		theirs.NotBefore = ours.NotBefore
	}
	compareCerts(t, name, theirs, ours, sameKind)
}

// A renewed key has the type of the old key, unless the configuration sets
// another. The configuration of kubeadm v1.29 cannot name the type.
func TestRenewKeepsTheKind(t *testing.T) {
	n := newNode(t)
	cfg := testConfig()
	n.init(cfg, start)
	renewed := func(algorithm string) string {
		cfg.EncryptionAlgorithm = algorithm
		result, err := pki.Renew(cfg, n.fs(), start, "apiserver")
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range result.Files {
			n.write(f.Path, f.Data)
		}
		return kindOf(parse(t, block(t, n.read(dir+"apiserver.key"))))
	}
	for algorithm, kind := range map[string]string{"ECDSA-P384": "ECDSA P-384", "ECDSA-P256": "ECDSA P-256", "RSA-3072": "RSA 3072"} {
		if got := renewed(algorithm); got != kind {
			t.Errorf("asked to be %s, it became %s", algorithm, got)
		}
		if got := renewed(""); got != kind {
			t.Errorf("%s became %s", kind, got)
		}
	}
}

// TestRename: names are added and removed, names that a user added to the certificate alone stay, and without a
// difference nothing is written. kubeadm's checks accept the result.
func TestRename(t *testing.T) {
	n := newNode(t)
	cfg := testConfig()
	cfg.APIServer.CertSANs = []string{"only-here.example"}
	n.init(cfg, start)
	cfg.APIServer.CertSANs = nil
	rename := func(want bool, remove ...string) *x509.Certificate {
		t.Helper()
		result, err := pki.Rename(cfg, n.fs(), start, "apiserver", remove...)
		if err != nil || (len(result.Files) == 2) != want {
			t.Fatalf("%d files, %v", len(result.Files), err)
		}
		for _, f := range result.Files {
			n.write(f.Path, f.Data)
		}
		cert := certificate(t, n.read(dir+"apiserver.crt"))
		if err := cert.VerifyHostname("only-here.example"); err != nil {
			t.Error(err)
		}
		return cert
	}
	before := rename(false)
	cfg.APIServer.CertSANs = []string{"10.9.9.9", "127.0.0.1", "k8s.site.example"}
	after := rename(true)
	for _, name := range cfg.APIServer.CertSANs {
		if err := after.VerifyHostname(name); err != nil {
			t.Error(err)
		}
	}
	rename(false)
	if _, err := pki.Ensure(cfg, n.fs(), start, "apiserver"); err != nil {
		t.Error(err)
	}
	kept := rename(false, "10.9.9.9") // the configuration still has it
	if err := kept.VerifyHostname("10.9.9.9"); err != nil {
		t.Error(err)
	}
	cfg.APIServer.CertSANs = append(cfg.APIServer.CertSANs, "fd00::9")
	rename(true)
	removed := append(cfg.APIServer.CertSANs[:3:3], "FD00:0::9")
	cfg.APIServer.CertSANs = nil
	last := rename(true, removed...)
	n.write(dir+"apiserver.key", n.read(dir+"front-proxy-client.key"))
	rename(true) // killed between the key and the certificate
	rename(false)
	if len(last.DNSNames) != len(before.DNSNames) || len(last.IPAddresses) != len(before.IPAddresses) {
		t.Errorf("%v %v", last.DNSNames, last.IPAddresses)
	}
}

// In clusters from before kubeadm v1.29, renewal replaces system:masters by the
// administrators' group.
func TestRenewTakesSystemMastersAway(t *testing.T) {
	n := newNode(t)
	cfg := testConfig()
	cfg.KubernetesVersion = "v1.29.15"
	n.init(cfg, start)
	// A certificate with the same name and the old group, as from kubeadm
	// before v1.29.
	users := newNode(t)
	for _, f := range []string{"ca.crt", "ca.key"} {
		users.write(dir+f, n.read(dir+f))
	}
	data, err := pki.UserKubeconfig(cfg, n.fs(), start, pki.User{Name: "kube-apiserver-kubelet-client", Groups: []string{"system:masters"}, Validity: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	u := kubeconfig(t, data).user(t)
	n.write(dir+"apiserver-kubelet-client.crt", decode64(t, u["client-certificate-data"]))
	n.write(dir+"apiserver-kubelet-client.key", decode64(t, u["client-key-data"]))
	n.renewAll(cfg, start)
	if got := certificate(t, n.read(dir+"apiserver-kubelet-client.crt")).Subject.Organization; !slices.Equal(got, []string{"kubeadm:cluster-admins"}) {
		t.Errorf("its groups are %v", got)
	}
}

// Renewal keeps what users have added to a kubeconfig.
func TestRenewKeepsTheRestOfAKubeconfig(t *testing.T) {
	n := newNode(t)
	cfg := testConfig()
	n.init(cfg, start)
	const file = "/etc/kubernetes/admin.conf"
	var doc map[string]any
	if err := yaml.Unmarshal(n.read(file), &doc); err != nil {
		t.Fatal(err)
	}
	doc["users"] = append(doc["users"].([]any), map[string]any{"name": "other", "user": map[string]any{"exec": map[string]any{"command": "login"}}})
	doc["extensions"] = []any{map[string]any{"name": "x", "extension": map[string]any{"a": "b"}}}
	data, err := yaml.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	n.write(file, data)
	n.renewAll(cfg, start)
	var after map[string]any
	if err := yaml.Unmarshal(n.read(file), &after); err != nil {
		t.Fatal(err)
	}
	secrets := func(doc map[string]any) (old any) {
		user := doc["users"].([]any)[0].(map[string]any)["user"].(map[string]any)
		old = user["client-certificate-data"]
		delete(user, "client-certificate-data")
		delete(user, "client-key-data")
		return old
	}
	if secrets(doc) == secrets(after) {
		t.Error("the certificate is the old one")
	}
	if diff := cmp.Diff(doc, after); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
}

func TestRenewRefuses(t *testing.T) {
	for _, test := range []struct {
		name, cert, says string
		spoil            func(node)
		now              time.Time
	}{
		{"an external CA's", "apiserver", "the CA " + dir + "ca.crt is not on this host, it is managed externally", func(n node) { n.remove(dir + "ca.key") }, start},
		{"a kubeconfig's external CA", "admin.conf", "is not on this host", func(n node) { n.remove(dir + "ca.key") }, start},
		{"what is not there", "scheduler.conf", "/etc/kubernetes/scheduler.conf does not exist", func(n node) { n.remove("/etc/kubernetes/scheduler.conf") }, start},
		{"without a CA", "etcd-peer", "its CA, " + dir + "etcd/ca.crt, does not exist", func(n node) { n.remove(dir + "etcd/ca.crt") }, start},
		{"below an expired CA", "apiserver", dir + "ca.crt exists but cannot be used: it expired", func(node) {}, start.Add(2 * config.CACertificateValidity)},
		{"a kubeconfig with a second document", "admin.conf", "there is a second document", func(n node) {
			n.write("/etc/kubernetes/admin.conf", append(n.read("/etc/kubernetes/admin.conf"), "---\nkind: Config\n"...))
		}, start},
		{"a kubeconfig with users twice", "admin.conf", "Config.users is written twice", func(n node) {
			n.write("/etc/kubernetes/admin.conf", append(n.read("/etc/kubernetes/admin.conf"), "users: []\n"...))
		}, start},
		{"a CA", "ca", `unknown name "ca"`, func(node) {}, start},
		{"garbage", "apiserver", dir + "apiserver.crt exists but cannot be used", func(n node) { n.write(dir+"apiserver.crt", []byte("x")) }, start},
	} {
		t.Run(test.name, func(t *testing.T) {
			n := newNode(t)
			n.init(testConfig(), start)
			test.spoil(n)
			result, err := pki.Renew(testConfig(), n.fs(), test.now, test.cert)
			if err == nil || !strings.Contains(err.Error(), test.says) || len(result.Files) > 0 {
				t.Errorf("%v, %d files; want %q", err, len(result.Files), test.says)
			}
		})
	}
}

func TestReadAtStart(t *testing.T) {
	for pod, want := range map[string]string{"kube-controller-manager": "/etc/kubernetes/controller-manager.conf", "kube-scheduler": "/etc/kubernetes/scheduler.conf", "kube-apiserver": "", "etcd": ""} {
		if got := pki.ReadAtStart(pod); got != want {
			t.Errorf("%s: %q, want %q", pod, got, want)
		}
	}
}

func TestRestart(t *testing.T) {
	if got := pki.Restart(pki.RenewableNames()...); !slices.Equal(got, []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"}) {
		t.Errorf("for all: %v", got)
	}
	if got := pki.Restart("admin.conf", "etcd-healthcheck-client"); len(got) > 0 {
		t.Errorf("for what nothing holds open: %v", got)
	}
}

// TestRequestsEqualKubeadm compares keys, signing requests and kubeconfigs with
// kubeadm's.
func TestRequestsEqualKubeadm(t *testing.T) {
	for _, version := range oracle.Versions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			cfg := testConfig()
			cfg.KubernetesVersion, cfg.EncryptionAlgorithm = version, "RSA-2048"
			cfg.ControlPlaneEndpoint = "k8s.example.com:8443"
			cfg.APIServer.CertSANs = []string{"api.example.com", "192.0.2.7"}
			theirs, ours := newNode(t), newNode(t)
			theirs.configure(version, "controlPlaneEndpoint: k8s.example.com:8443\napiServer: {certSANs: [api.example.com, 192.0.2.7]}")
			theirs.kubeadm(version, "certs", "generate-csr", "--config", "/kubeadm.yaml", "--kubeconfig-dir", "/conf", "--cert-dir", dir)
			theirs.remove("/kubeadm.yaml")
			result, err := pki.Requests(cfg, ours.fs(), "/conf")
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range result.Files {
				put(t, ours.root, f)
			}
			a, b := theirs.snapshot(), ours.snapshot()
			for file, data := range a {
				if b[file] == nil {
					t.Errorf("kubeadm makes %s, we do not", file)
					continue
				}
				switch filepath.Ext(file) {
				case ".csr":
					if diff := cmp.Diff(requestOf(t, data), requestOf(t, b[file])); diff != "" {
						t.Errorf("%s differs (-kubeadm +ours):\n%s", file, diff)
					}
				case ".key":
					compareKeys(t, file, data, b[file])
				case ".conf":
					if diff := cmp.Diff(kubeconfig(t, data).withoutSecrets(t), kubeconfig(t, b[file]).withoutSecrets(t)); diff != "" {
						t.Errorf("%s differs (-kubeadm +ours):\n%s", file, diff)
					}
					ka, kb := kubeconfig(t, data).user(t), kubeconfig(t, b[file]).user(t)
					compareKeys(t, file, decode64(t, ka["client-key-data"]), decode64(t, kb["client-key-data"]))
					if len(ka) != len(kb) {
						t.Errorf("%s's user has %v, kubeadm's %v", file, kb, ka)
					}
				}
				if ma, mb := theirs.mode(file), ours.mode(file); ma != mb {
					t.Errorf("%s has mode %v, kubeadm's %v", file, mb, ma)
				}
			}
			if len(a) != len(b) {
				t.Errorf("kubeadm makes %d files, we make %d", len(a), len(b))
			}

			if _, err := pki.Requests(cfg, ours.fs(), "/conf"); err == nil || !strings.Contains(err.Error(), dir+"apiserver.key already exists") || !strings.Contains(err.Error(), "/conf/kubelet.conf already exists") {
				t.Errorf("a second time: %v", err)
			}
		})
	}
}

// See oracle.Differences, generate-csr.
func TestRequestsFitTheHost(t *testing.T) {
	n := newNode(t)
	cfg := testConfig()
	n.init(cfg, start)
	ca := n.read(dir + "ca.crt")
	n.remove("/etc/kubernetes")
	n.write(dir+"ca.crt", ca)
	cfg.Etcd.External = &config.ExternalEtcd{Endpoints: []string{"https://10.0.0.9:2379"}}
	result, err := pki.Requests(cfg, n.fs(), "/etc/kubernetes")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range result.Files {
		if strings.Contains(f.Path, "etcd") {
			t.Errorf("made %s for an external etcd", f.Path)
		}
		if filepath.Ext(f.Path) == ".conf" {
			cluster := kubeconfig(t, f.Data)["clusters"].([]any)[0].(map[string]any)["cluster"].(map[string]any)
			if !bytes.Equal(decode64(t, cluster["certificate-authority-data"]), ca) {
				t.Errorf("%s does not hold the CA", f.Path)
			}
		}
	}
}

// request is the content of a signing request.
type request struct {
	Subject, Kind, Signature string
	DNSNames, IPs            []string
	Extensions               []string
}

func requestOf(t *testing.T, data []byte) request {
	t.Helper()
	b := block(t, data)
	csr, err := x509.ParseCertificateRequest(b.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if err := csr.CheckSignature(); err != nil {
		t.Error(err)
	}
	r := request{b.Type + " " + csr.Subject.String(), kindOf(csr.PublicKey), csr.SignatureAlgorithm.String(), csr.DNSNames, nil, nil}
	for _, ip := range csr.IPAddresses {
		r.IPs = append(r.IPs, ip.String())
	}
	slices.Sort(r.DNSNames)
	slices.Sort(r.IPs)
	for _, e := range csr.Extensions {
		r.Extensions = append(r.Extensions, fmt.Sprintf("%s critical=%v", e.Id, e.Critical))
	}
	return r
}

func TestUserKubeconfigEqualsKubeadm(t *testing.T) {
	for _, version := range oracle.Versions {
		for name, args := range map[string][]string{
			"certificate": {"--client-name", "jane", "--org", "dev,ops", "--validity-period", "48h"},
			"token":       {"--client-name", "ci", "--token", "abcdef.0123456789abcdef"},
		} {
			t.Run(version+" "+name, func(t *testing.T) {
				t.Parallel()
				oracle.Kubeadm(t, version)
				cfg := testConfig()
				cfg.KubernetesVersion, cfg.EncryptionAlgorithm = version, "RSA-2048"
				cfg.ControlPlaneEndpoint = "k8s.example.com"
				n := newNode(t)
				quick := *cfg
				quick.EncryptionAlgorithm = "ECDSA-P256"
				n.init(&quick, time.Now())
				n.configure(version, "controlPlaneEndpoint: k8s.example.com")
				u := pki.User{Name: "jane", Groups: []string{"dev", "ops"}, Validity: 48 * time.Hour}
				if name == "token" {
					u = pki.User{Name: "ci", Token: "abcdef.0123456789abcdef"}
				}
				theirs := n.kubeadm(version, append([]string{"kubeconfig", "user", "--config", "/kubeadm.yaml"}, args...)...)
				ours, err := pki.UserKubeconfig(cfg, n.fs(), time.Now(), u)
				if err != nil {
					t.Fatal(err)
				}
				a, b := kubeconfig(t, theirs), kubeconfig(t, ours)
				if diff := cmp.Diff(a.withoutSecrets(t), b.withoutSecrets(t)); diff != "" {
					t.Errorf("(-kubeadm +ours):\n%s", diff)
				}
				if name == "token" {
					if diff := cmp.Diff(a.user(t), b.user(t)); diff != "" {
						t.Errorf("the user (-kubeadm +ours):\n%s", diff)
					}
					return
				}
				compareCerts(t, name, certificate(t, decode64(t, a.user(t)["client-certificate-data"])),
					certificate(t, decode64(t, b.user(t)["client-certificate-data"])), true)
				compareKeys(t, name, decode64(t, a.user(t)["client-key-data"]), decode64(t, b.user(t)["client-key-data"]))
			})
		}
	}
}
