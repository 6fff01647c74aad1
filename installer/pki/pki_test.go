package pki_test

import (
	"bytes"
	"encoding/pem"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"airlift/installer/config"
	"airlift/installer/pki"
	"airlift/internal/fault"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func testConfig() *config.Config {
	c := &config.Config{}
	c.NodeRegistration.Name = "n1"
	c.LocalAPIEndpoint.AdvertiseAddress = "10.0.0.11"
	c.CompleteInit()
	return c
}

// A node is a host's root directory, to which the tests write the package's
// results.
type node struct {
	t    *testing.T
	root string
}

func newNode(t *testing.T) node { return node{t, t.TempDir()} }

func (n node) fs() fs.FS { return os.DirFS(n.root) }

// run calls build and writes its result to the node.
func (n node) run(build func(*config.Config, fs.FS, time.Time) (pki.Result, error), cfg *config.Config, now time.Time) (pki.Result, error) {
	n.t.Helper()
	result, err := build(cfg, n.fs(), now)
	if err == nil {
		for _, f := range result.Files {
			put(n.t, n.root, f)
		}
	}
	return result, err
}

// init creates everything that init creates, and fails the test on an error.
func (n node) init(cfg *config.Config, now time.Time) (written, kept []string) {
	n.t.Helper()
	for _, build := range builders {
		result, err := n.run(build, cfg, now)
		if err != nil {
			n.t.Fatal(err)
		}
		for _, f := range result.Files {
			written = append(written, f.Path)
		}
		kept = append(kept, result.Kept...)
	}
	return written, kept
}

// builders are the functions that init calls, in its order.
var builders = []func(*config.Config, fs.FS, time.Time) (pki.Result, error){
	func(c *config.Config, host fs.FS, now time.Time) (pki.Result, error) { return pki.Ensure(c, host, now) },
	func(c *config.Config, host fs.FS, now time.Time) (pki.Result, error) {
		return pki.Kubeconfigs(c, host, now)
	},
	pki.KubeletClient,
}

func (n node) read(path string) []byte {
	n.t.Helper()
	data, err := os.ReadFile(filepath.Join(n.root, path))
	if err != nil {
		n.t.Fatal(err)
	}
	return data
}

func (n node) write(path string, data []byte) {
	n.t.Helper()
	n.remove(path)
	put(n.t, n.root, pki.File{Path: path, Data: data, Mode: 0o600})
}

func (n node) remove(paths ...string) {
	n.t.Helper()
	for _, path := range paths {
		if err := os.RemoveAll(filepath.Join(n.root, path)); err != nil {
			n.t.Fatal(err)
		}
	}
}

const dir = "/etc/kubernetes/pki/"

func TestSecondRunKeepsEverything(t *testing.T) {
	n := newNode(t)
	written, kept := n.init(testConfig(), start)
	if len(kept) > 0 {
		t.Errorf("the first run kept %v", kept)
	}
	// 10 certificates with keys, the service-account key pair, 4 kubeconfigs,
	// the kubelet's certificate, its link and its kubeconfig.
	if len(written) != 2*10+2+4+3 {
		t.Errorf("the first run wrote %d files: %v", len(written), written)
	}
	again, kept := n.init(testConfig(), start.Add(24*time.Hour))
	if len(again) > 0 {
		t.Errorf("the second run wrote %v", again)
	}
	if want := 2*10 + 2 + 4 + 1; len(kept) != want { // kubelet.conf counts for its certificate too
		t.Errorf("the second run kept %d files, want %d: %v", len(kept), want, kept)
	}
}

// If a run is stopped between two writes, the next run completes it and keeps
// the existing files.
func TestResumesAfterEveryWrite(t *testing.T) {
	cfg := testConfig()
	full := newNode(t)
	files, _ := full.init(cfg, start)
	for stopped := range files {
		n := newNode(t)
		left := stopped
		for _, build := range builders {
			result, err := build(cfg, n.fs(), start)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range result.Files[:min(left, len(result.Files))] {
				put(t, n.root, f)
			}
			if left -= len(result.Files); left < 0 {
				break
			}
		}
		before := n.snapshot()
		for _, build := range builders {
			if _, err := n.run(build, cfg, start.Add(time.Minute)); err != nil {
				t.Fatalf("stopped after %d writes: %v", stopped, err)
			}
		}
		for path, data := range before {
			if !bytes.Equal(n.read(path), data) {
				t.Errorf("stopped after %d writes: %s was changed", stopped, path)
			}
		}
	}
}

func (n node) snapshot() map[string][]byte {
	n.t.Helper()
	files := map[string][]byte{}
	err := filepath.WalkDir(n.root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name := strings.TrimPrefix(path, n.root)
		files[name] = n.read(name)
		return nil
	})
	if err != nil {
		n.t.Fatal(err)
	}
	return files
}

func TestBadFilesAreNamed(t *testing.T) {
	other := newNode(t) // another cluster
	other.init(testConfig(), start)
	year := 366 * 24 * time.Hour

	for _, test := range []struct {
		name  string
		spoil func(n node)
		cfg   func(*config.Config)
		now   time.Time
		file  string // file that the message must name
		says  string
		hint  string // in the hint
	}{
		{name: "expired certificate", now: start.Add(year), file: dir + "apiserver.crt", says: "expired at 2027-03-01 12:00:00 UTC"},
		{name: "clock before the certificates", now: start.Add(-time.Hour), file: dir + "ca.crt", says: "not valid before 2026-03-01 11:55:00 UTC"},
		{name: "expired CA", now: start.Add(11 * year), file: dir + "ca.crt", says: "expired"},
		{name: "certificate of another CA", file: dir + "apiserver.crt", says: "not signed by " + dir + "ca.crt", spoil: func(n node) {
			n.write(dir+"apiserver.crt", other.read(dir+"apiserver.crt"))
			n.write(dir+"apiserver.key", other.read(dir+"apiserver.key"))
		}},
		{name: "key of another certificate", file: dir + "etcd/peer.key", says: "not the key of " + dir + "etcd/peer.crt", spoil: func(n node) {
			n.write(dir+"etcd/peer.key", n.read(dir+"etcd/server.key"))
		}},
		{name: "key of another CA", file: dir + "ca.key", says: "not the key of", spoil: func(n node) {
			n.write(dir+"ca.key", other.read(dir+"ca.key"))
		}},
		{name: "CA replaced", file: dir + "apiserver.crt", says: "not signed by", spoil: func(n node) {
			n.write(dir+"ca.crt", other.read(dir+"ca.crt"))
			n.write(dir+"ca.key", other.read(dir+"ca.key"))
		}},
		{name: "no CA in the CA's place", file: dir + "ca.crt", says: "not a CA certificate", spoil: func(n node) {
			n.write(dir+"ca.crt", n.read(dir+"apiserver.crt"))
		}},
		{name: "new address", file: dir + "apiserver.crt", says: "not valid for the address 10.0.0.99",
			cfg: func(c *config.Config) { c.LocalAPIEndpoint.AdvertiseAddress = "10.0.0.99" }},
		{name: "new name", file: dir + "apiserver.crt", says: `not valid for the name "api.example.com"`,
			cfg: func(c *config.Config) { c.APIServer.CertSANs = []string{"api.example.com"} }},
		{name: "wrong usage", file: dir + "apiserver-kubelet-client.crt", says: "its key usage does not allow client authentication", spoil: func(n node) {
			n.write(dir+"apiserver-kubelet-client.crt", n.read(dir+"apiserver.crt"))
			n.write(dir+"apiserver-kubelet-client.key", n.read(dir+"apiserver.key"))
		}},
		{name: "certificate without its key", file: dir + "front-proxy-client.crt", says: dir + "front-proxy-client.key does not", spoil: func(n node) {
			n.remove(dir + "front-proxy-client.key")
		}},
		{name: "garbage certificate", file: dir + "apiserver.crt", says: "no PEM certificate", spoil: func(n node) {
			n.write(dir+"apiserver.crt", []byte("hello"))
		}},
		{name: "garbage key", file: dir + "sa.key", says: "no PEM private key", spoil: func(n node) {
			n.write(dir+"sa.key", []byte("hello"))
		}},
		{name: "encrypted CA key", file: dir + "ca.key", says: "an encrypted private key", hint: "openssl pkey -in " + dir + "ca.key", spoil: func(n node) {
			n.write(dir+"ca.key", pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: []byte("secret")}))
		}},
		{name: "encrypted key in the old format", file: dir + "ca.key", says: "an encrypted private key", hint: "openssl pkey -in " + dir + "ca.key", spoil: func(n node) {
			n.write(dir+"ca.key", pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Headers: map[string]string{"Proc-Type": "4,ENCRYPTED", "DEK-Info": "AES-256-CBC,00"}, Bytes: []byte("secret")}))
		}},
		{name: "CA in DER", file: dir + "ca.crt", says: "a certificate in DER", hint: "openssl x509 -inform der -in " + dir + "ca.crt", spoil: func(n node) {
			block, _ := pem.Decode(n.read(dir + "ca.crt"))
			n.write(dir+"ca.crt", block.Bytes)
		}},
		{name: "key in the certificate's place", file: dir + "ca.crt", says: "a private key, not a certificate", hint: "the certificate", spoil: func(n node) {
			n.write(dir+"ca.crt", n.read(dir+"ca.key"))
		}},
		{name: "certificate in the key's place", file: dir + "sa.key", says: "a certificate, not a private key", hint: "the private key", spoil: func(n node) {
			n.write(dir+"sa.key", n.read(dir+"ca.crt"))
		}},
		{name: "private key in the public key's place", file: dir + "sa.pub", says: "a private key, not a public key", hint: "openssl pkey -pubout", spoil: func(n node) {
			n.write(dir+"sa.pub", n.read(dir+"sa.key"))
		}},
		{name: "public key of another pair", file: dir + "sa.pub", says: "does not belong to the key " + dir + "sa.key", spoil: func(n node) {
			n.write(dir+"sa.pub", other.read(dir+"sa.pub"))
		}},
		{name: "external CA with something missing", file: dir + "apiserver.crt", says: "the CA " + dir + "ca.crt is not on this host", spoil: func(n node) {
			n.remove(dir+"ca.key", dir+"apiserver.crt", dir+"apiserver.key")
		}},
		{name: "kubeconfig of another cluster", file: "/etc/kubernetes/admin.conf", says: "does not trust the CA", spoil: func(n node) {
			n.write("/etc/kubernetes/admin.conf", other.read("/etc/kubernetes/admin.conf"))
		}},
		{name: "kubeconfig for another server", file: "/etc/kubernetes/admin.conf", says: "points at https://10.0.0.11:6443, not at https://10.0.0.100:6443",
			spoil: func(n node) { n.remove(dir+"apiserver.crt", dir+"apiserver.key") },
			cfg:   func(c *config.Config) { c.ControlPlaneEndpoint = "10.0.0.100" }},
		{name: "kubeconfig cut off", file: "/etc/kubernetes/scheduler.conf", says: "cannot be used", spoil: func(n node) {
			n.write("/etc/kubernetes/scheduler.conf", n.read("/etc/kubernetes/scheduler.conf")[:30])
		}},
		{name: "kubelet.conf without its certificate", file: "/etc/kubernetes/kubelet.conf", says: "no client certificate", spoil: func(n node) {
			n.remove(pki.KubeletCertFile(new(config.Config)))
		}},
		{name: "another node's kubelet certificate", file: pki.KubeletCertFile(new(config.Config)), says: `for "system:node:n1", not for "system:node:n2"`,
			spoil: func(n node) {
				n.remove("/etc/kubernetes/kubelet.conf", dir+"apiserver.crt", dir+"apiserver.key", dir+"etcd/server.crt", dir+"etcd/server.key",
					dir+"etcd/peer.crt", dir+"etcd/peer.key")
			},
			cfg: func(c *config.Config) { c.NodeRegistration.Name = "n2" }},
		{name: "another node's kubelet.conf", file: "/etc/kubernetes/kubelet.conf", says: `for "system:node:n1", not for "system:node:n2"`,
			spoil: func(n node) {
				n.remove(dir+"apiserver.crt", dir+"etcd/server.crt", dir+"etcd/peer.crt")
			},
			cfg: func(c *config.Config) { c.NodeRegistration.Name = "n2" }},
		{name: "unusable extra name", file: "", says: `"not a name", which is neither an IP address nor a DNS name`,
			cfg: func(c *config.Config) { c.APIServer.CertSANs = []string{"not a name"} }},
	} {
		t.Run(test.name, func(t *testing.T) {
			n := newNode(t)
			n.init(testConfig(), start)
			if test.spoil != nil {
				test.spoil(n)
			}
			cfg := testConfig()
			if test.cfg != nil {
				test.cfg(cfg)
			}
			now := start
			if !test.now.IsZero() {
				now = test.now
			}
			var err error
			for _, build := range builders {
				if _, err = n.run(build, cfg, now); err != nil {
					break
				}
			}
			if err == nil {
				t.Fatal("it was accepted")
			}
			if !strings.Contains(err.Error(), test.file) || !strings.Contains(err.Error(), test.says) {
				t.Errorf("the message is\n%s\nand lacks %q or %q", err, test.file, test.says)
			}
			if hint := fault.Hint(err); hint == "" || !strings.Contains(hint, test.hint) {
				t.Errorf("%s: the hint is %q, and lacks %q", err, hint, test.hint)
			}
		})
	}
}

// With an external CA Airlift can sign nothing, and has nothing to sign.
func TestExternalCA(t *testing.T) {
	n := newNode(t)
	n.init(testConfig(), start)
	n.remove(dir+"ca.key", dir+"front-proxy-ca.key", dir+"etcd/ca.key")
	written, _ := n.init(testConfig(), start)
	if len(written) > 0 {
		t.Errorf("wrote %v", written)
	}
}

// Airlift uses an existing CA and service-account key of the user.
func TestUsersCA(t *testing.T) {
	users := newNode(t)
	users.init(testConfig(), start)
	n := newNode(t)
	for _, file := range []string{"ca.crt", "ca.key", "sa.key"} {
		n.write(dir+file, users.read(dir+file))
	}
	written, kept := n.init(testConfig(), start)
	for _, file := range []string{"ca.crt", "ca.key", "sa.key"} {
		if !slices.Contains(kept, dir+file) || slices.Contains(written, dir+file) {
			t.Errorf("%s was not kept", file)
		}
	}
	if !bytes.Equal(n.read(dir+"sa.pub"), users.read(dir+"sa.pub")) {
		t.Error("sa.pub was not made from the user's sa.key")
	}
}

func TestKubeletKeepsRotatedCertificate(t *testing.T) {
	n := newNode(t)
	cfg := testConfig()
	n.init(cfg, start)
	n.remove("/etc/kubernetes/kubelet.conf")
	result, err := n.run(pki.KubeletClient, cfg, start)
	if err != nil {
		t.Fatal(err)
	}
	if len(result.Files) != 1 || result.Files[0].Path != "/etc/kubernetes/kubelet.conf" || !slices.Contains(result.Kept, pki.KubeletCertFile(new(config.Config))) {
		t.Errorf("wrote %v and kept %v", result.Files, result.Kept)
	}
}

// kubeadm uses the last --cert-dir in kubeletExtraArgs for the kubelet's rotated
// certificate (cmd/phases/init/kubeletfinalize.go), in v1.29 as in v1.37.
func TestKubeletCertDirIsFollowed(t *testing.T) {
	n := newNode(t)
	cfg := testConfig()
	cfg.NodeRegistration.KubeletExtraArgs = []config.Arg{{Name: "cert-dir", Value: "/wrong"}, {Name: "cert-dir", Value: "/data/pki"}}
	n.init(cfg, start)
	const current = "/data/pki/kubelet-client-current.pem"
	if kubeconfig := string(n.read("/etc/kubernetes/kubelet.conf")); strings.Count(kubeconfig, ": "+current+"\n") != 2 {
		t.Errorf("kubelet.conf does not refer to %s:\n%s", current, kubeconfig)
	}
	if got := certificate(t, n.read(current)).Subject.CommonName; got != "system:node:"+cfg.NodeRegistration.Name {
		t.Errorf("the certificate is for %q", got)
	}
	if got := pki.NodeName(n.fs()); got != cfg.NodeRegistration.Name {
		t.Errorf("the node's name is %q", got)
	}
	if _, err := fs.Stat(n.fs(), "var/lib/kubelet/pki"); err == nil {
		t.Error("a certificate is in the default directory")
	}
	if result, err := n.run(pki.KubeletClient, cfg, start); err != nil || len(result.Files) > 0 {
		t.Errorf("again: %v, %v", result.Files, err)
	}
}

// An error names the file by its path on the host.
func TestUnreadableFile(t *testing.T) {
	n := newNode(t)
	n.write(dir+"ca.crt/not-a-file", nil)
	_, err := pki.Ensure(testConfig(), n.fs(), start)
	if err == nil || !strings.HasPrefix(err.Error(), "reading "+dir+"ca.crt: ") {
		t.Error(err)
	}
	_, err = pki.Ensure(testConfig(), locked{n.fs()}, start, "ca")
	if err == nil || err.Error() != "reading "+dir+"ca.crt: permission denied" || fault.Hint(err) != "run it as root" {
		t.Errorf("%v (hint %q)", err, fault.Hint(err))
	}
}

// locked is a file system that the user may not read.
type locked struct{ fs.FS }

func (locked) Open(name string) (fs.File, error) {
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
}

// TestClientGoLoads: client-go, which most Kubernetes clients use, must load
// Airlift's kubeconfigs.
func TestClientGoLoads(t *testing.T) {
	n := newNode(t)
	cfg := testConfig()
	n.init(cfg, start)
	ca := n.read(dir + "ca.crt")
	for name, data := range map[string][]byte{
		"admin.conf":             n.read("/etc/kubernetes/admin.conf"),
		"bootstrap-kubelet.conf": pki.BootstrapKubeconfig("https://10.0.0.11:6443", ca, "abcdef.0123456789abcdef"),
	} {
		rest, err := clientcmd.RESTConfigFromKubeConfig(data)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if rest.Host != "https://10.0.0.11:6443" || !bytes.Equal(rest.CAData, ca) {
			t.Errorf("%s: host %q, CA %q", name, rest.Host, rest.CAData)
		}
		if name == "admin.conf" && (len(rest.CertData) == 0 || len(rest.KeyData) == 0) {
			t.Errorf("%s has no credentials", name)
		}
		if name == "bootstrap-kubelet.conf" && rest.BearerToken != "abcdef.0123456789abcdef" {
			t.Errorf("%s has the token %q", name, rest.BearerToken)
		}
	}
}
