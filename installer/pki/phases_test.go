package pki_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"airlift/installer/config"
	"airlift/installer/pki"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/rig"
	"airlift/scripts/oracle"
)

// TestOneByOne creates each item by its name, in kubeadm's order. The result must be the same as
// the result of a complete init.
func TestOneByOne(t *testing.T) {
	cfg := testConfig()
	whole, n := newNode(t), newNode(t)
	whole.init(cfg, start)
	for _, name := range pki.Names() {
		if pki.Doc(name) == "" {
			t.Errorf("%s has no description", name)
		}
		result, err := pki.Ensure(cfg, n.fs(), start, name)
		if err != nil {
			t.Fatal(err)
		}
		if len(result.Files) != 2 {
			t.Errorf("%s makes %d files", name, len(result.Files))
		}
		for _, f := range result.Files {
			if base := strings.TrimSuffix(strings.TrimPrefix(f.Path, dir), filepath.Ext(f.Path)); strings.ReplaceAll(base, "/", "-") != name && base != "etcd/"+name && base != name {
				t.Errorf("%s makes %s", name, f.Path)
			}
			put(t, n.root, f)
		}
	}
	for _, name := range pki.KubeconfigNames() {
		if pki.Doc(name) == "" {
			t.Errorf("%s has no description", name)
		}
		result, err := pki.Kubeconfigs(cfg, n.fs(), start, name)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range result.Files {
			put(t, n.root, f)
		}
		if last := result.Files[len(result.Files)-1].Path; last != "/etc/kubernetes/"+name+".conf" {
			t.Errorf("%s makes %s", name, last)
		}
	}
	for path := range whole.snapshot() {
		if !n.exists(path) {
			t.Errorf("%s was not made", path)
		}
	}
	if a, b := len(whole.snapshot()), len(n.snapshot()); a != b {
		t.Errorf("made %d files, init makes %d", b, a)
	}
}

func TestNamesAreChecked(t *testing.T) {
	n := newNode(t)
	for _, test := range []struct {
		name string
		run  func() (pki.Result, error)
		says string
		code fault.Code
	}{
		{"unknown certificate", func() (pki.Result, error) { return pki.Ensure(testConfig(), n.fs(), start, "api") }, `unknown name "api"`, fault.Usage},
		{"unknown kubeconfig", func() (pki.Result, error) { return pki.Kubeconfigs(testConfig(), n.fs(), start, "kubelet.conf") }, `unknown name "kubelet.conf"`, fault.Usage},
		{"leaf before its CA", func() (pki.Result, error) { return pki.Ensure(testConfig(), n.fs(), start, "etcd-peer") }, dir + "etcd/ca.crt does not exist", fault.Failure},
		{"kubeconfig before the CA", func() (pki.Result, error) { return pki.Kubeconfigs(testConfig(), n.fs(), start, "admin") }, dir + "ca.crt does not exist", fault.Failure},
	} {
		_, err := test.run()
		if err == nil || !strings.Contains(err.Error(), test.says) || fault.ExitCode(err) != test.code || fault.Hint(err) == "" {
			t.Errorf("%s: %v (code %d, hint %q)", test.name, err, fault.ExitCode(err), fault.Hint(err))
		}
	}
	external := testConfig()
	external.Etcd.External = &config.ExternalEtcd{Endpoints: []string{"https://10.0.0.9:2379"}}
	for _, name := range []string{"etcd-ca", "etcd-server", "apiserver-etcd-client"} {
		if result, err := pki.Ensure(external, n.fs(), start, name); err != nil || len(result.Files) > 0 {
			t.Errorf("%s with an external etcd: %v, %d files", name, err, len(result.Files))
		}
	}
}

// TestKubeletClientByName lists the releases that contain kubeadm's change, from
// their release notes.
func TestKubeletClientByName(t *testing.T) {
	for version, want := range map[string]bool{
		"v1.29.15": false, "v1.32.13": false, "v1.33.11": false, "v1.33.12": true, "v1.34.7": false, "v1.34.8": true,
		"v1.35.4": false, "v1.35.6": true, "v1.36.0": false, "v1.36.1": true, "v1.37.0": true, "v1.37.1": true, "v1.40.0": true, "": false,
	} {
		if got := pki.KubeletClientByName(version); got != want {
			t.Errorf("%q: %v", version, got)
		}
	}
}

// With an external CA, the error lists all missing files at once.
func TestExternalCATellsAll(t *testing.T) {
	n := newNode(t)
	cfg := testConfig()
	n.init(cfg, start)
	gone := []string{dir + "apiserver.crt", dir + "apiserver-kubelet-client.crt", dir + "etcd/peer.crt",
		"/etc/kubernetes/admin.conf", "/etc/kubernetes/scheduler.conf", "/etc/kubernetes/kubelet.conf"}
	n.remove(append([]string{dir + "ca.key", dir + "etcd/ca.key", pki.KubeletCertFile(new(config.Config))}, gone...)...)
	_, err := pki.Ensure(cfg, n.fs(), start)
	if err == nil {
		t.Fatal("it was accepted")
	}
	for _, file := range gone {
		if !strings.Contains(err.Error(), "\n  - "+file+" does not exist and cannot be created") {
			t.Errorf("%s is not told of in\n%s", file, err)
		}
	}
	if n := strings.Count(err.Error(), "\n  - "); n != len(gone) || !strings.HasPrefix(err.Error(), "6 of this node's certificates") {
		t.Errorf("%d are told of, want %d:\n%s", n, len(gone), err)
	}
	if !strings.Contains(fault.Hint(err), "generate-csr") && !strings.Contains(fault.Hint(err), "provide the missing files") {
		t.Errorf("the hint is %q", fault.Hint(err))
	}
}

// As in kubeadm, --upload-certs needs the key of every CA.
func TestExternalCAIsNotUploaded(t *testing.T) {
	n := newNode(t)
	cfg := testConfig()
	cfg.UploadCerts = true
	n.init(cfg, start)
	n.remove(dir + "front-proxy-ca.key")
	_, err := pki.Ensure(cfg, n.fs(), start)
	if err == nil || !strings.Contains(err.Error(), "--upload-certs cannot upload "+dir+"front-proxy-ca.key") || fault.ExitCode(err) != fault.Usage {
		t.Error(err)
	}
	cfg.UploadCerts = false
	if _, err := pki.Ensure(cfg, n.fs(), start); err != nil {
		t.Error(err)
	}
}

// A clock without a battery starts in 1970. No certificate may get a date from it.
func TestImpossibleClock(t *testing.T) {
	n := newNode(t)
	n.init(testConfig(), start)
	then := time.Unix(1000, 0)
	for name, run := range map[string]func() (pki.Result, error){
		"init":        func() (pki.Result, error) { return pki.Ensure(testConfig(), newNode(t).fs(), then) },
		"kubeconfigs": func() (pki.Result, error) { return pki.Kubeconfigs(testConfig(), n.fs(), then) },
		"renewal":     func() (pki.Result, error) { return pki.Renew(testConfig(), n.fs(), then, "apiserver") },
	} {
		if result, err := run(); err == nil || !strings.Contains(err.Error(), "clock shows 1970-01-01T") || fault.Hint(err) == "" || len(result.Files) > 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestJoiningControlPlane checks the certificates and kubeconfigs of a control
// plane that joins.
func TestJoiningControlPlane(t *testing.T) {
	first := newNode(t)
	first.init(testConfig(), start)
	joining := testConfig()
	joining.ControlPlane = true
	joining.NodeRegistration.Name, joining.LocalAPIEndpoint.AdvertiseAddress = "n2", "10.0.0.12"
	joining.ControlPlaneEndpoint = "10.0.0.100:6443"
	shared := []string{"ca.crt", "ca.key", "sa.key", "sa.pub", "front-proxy-ca.crt", "front-proxy-ca.key", "etcd/ca.crt", "etcd/ca.key"}

	n := newNode(t)
	for _, check := range []error{pki.CheckShared(joining, n.fs(), start), second(pki.Ensure(joining, n.fs(), start))} {
		if check == nil {
			t.Fatal("an empty host may join")
		}
		for _, file := range []string{"ca.crt", "sa.key", "front-proxy-ca.crt", "etcd/ca.crt"} {
			if !strings.Contains(check.Error(), dir+file+" does not exist") {
				t.Errorf("%s is not told of in\n%s", file, check)
			}
		}
		if !strings.Contains(fault.Hint(check), "--certificate-key") {
			t.Errorf("the hint is %q", fault.Hint(check))
		}
	}

	for _, file := range shared {
		n.write(dir+file, first.read(dir+file))
	}
	if err := pki.CheckShared(joining, n.fs(), start); err != nil {
		t.Fatal(err)
	}
	result, err := pki.Ensure(joining, n.fs(), start)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range result.Files {
		if name := strings.TrimPrefix(f.Path, dir); slices.Contains(shared, name) {
			t.Errorf("%s was made", name)
		}
		put(t, n.root, f)
	}
	if len(result.Files) != 2*7 {
		t.Errorf("%d files were made, want 7 pairs: %v", len(result.Files), result.Files)
	}
	made, err := pki.Kubeconfigs(joining, n.fs(), start)
	if err != nil {
		t.Fatal(err)
	}
	servers := map[string]string{}
	for _, f := range made.Files {
		clusters := kubeconfig(t, f.Data)["clusters"].([]any)
		servers[filepath.Base(f.Path)] = clusters[0].(map[string]any)["cluster"].(map[string]any)["server"].(string)
	}
	// As in kubeadm v1.29 and v1.37 (getKubeConfigSpecsBase), the controllers use
	// the local API server. Administrators use the shared endpoint.
	for file, want := range map[string]string{"admin.conf": "https://10.0.0.100:6443",
		"controller-manager.conf": "https://10.0.0.12:6443", "scheduler.conf": "https://10.0.0.12:6443"} {
		if servers[file] != want {
			t.Errorf("%s points at %s, want %s", file, servers[file], want)
		}
	}
	if len(servers) != 3 {
		t.Errorf("made %v", servers)
	}
}

func second(_ pki.Result, err error) error { return err }

// CheckShared with external CAs, wrong files and an external etcd.
func TestCheckShared(t *testing.T) {
	etcd := &config.ExternalEtcd{Endpoints: []string{"https://10.0.0.9:2379"}, CAFile: "/e/ca.crt", CertFile: "/e/client.crt", KeyFile: "/e/client.key"}
	for _, test := range []struct {
		name  string
		etcd  *config.ExternalEtcd
		spoil func(n, first node)
		says  []string
	}{
		{name: "all there", spoil: func(n, _ node) {}},
		{name: "external CA, own certificates missing", spoil: func(n, _ node) { n.remove(dir + "ca.key") },
			says: []string{dir + "apiserver.crt does not exist", dir + "apiserver-kubelet-client.crt does not exist", "/etc/kubernetes/admin.conf does not exist", "/etc/kubernetes/scheduler.conf does not exist"}},
		{name: "external front proxy CA", spoil: func(n, _ node) { n.remove(dir + "front-proxy-ca.key") }, says: []string{dir + "front-proxy-client.crt does not exist"}},
		{name: "keys of others", spoil: func(n, _ node) {
			n.write(dir+"ca.key", n.read(dir+"front-proxy-ca.key"))
			n.write(dir+"sa.pub", []byte("x"))
		}, says: []string{dir + "ca.key exists but cannot be used", dir + "sa.pub exists but cannot be used"}},
		{name: "external etcd, nothing there", etcd: etcd, spoil: func(n, _ node) { n.remove(dir + "etcd") },
			says: []string{"/e/ca.crt does not exist", "/e/client.crt does not exist", "/e/client.key does not exist"}},
		{name: "external etcd", etcd: etcd, spoil: func(n, first node) {
			n.write("/e/ca.crt", first.read(dir+"etcd/ca.crt"))
			n.write("/e/client.crt", first.read(dir+"apiserver-etcd-client.crt"))
			n.write("/e/client.key", first.read(dir+"apiserver-etcd-client.key"))
		}},
		{name: "external etcd, another key", etcd: etcd, spoil: func(n, first node) {
			n.write("/e/ca.crt", []byte("x"))
			n.write("/e/client.crt", first.read(dir+"apiserver.crt"))
			n.write("/e/client.key", first.read(dir+"apiserver-etcd-client.key"))
		}, says: []string{"/e/ca.crt exists but cannot be used", "/e/client.crt exists but cannot be used: its key usage does not allow client authentication", "/e/client.key exists but cannot be used: it is not the key of /e/client.crt"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			first, n := newNode(t), newNode(t)
			first.init(testConfig(), start)
			for _, file := range []string{"ca.crt", "ca.key", "sa.key", "sa.pub", "front-proxy-ca.crt", "front-proxy-ca.key", "etcd/ca.crt", "etcd/ca.key"} {
				n.write(dir+file, first.read(dir+file))
			}
			test.spoil(n, first)
			cfg := testConfig()
			cfg.Etcd.External = test.etcd
			before := n.snapshot()
			err := pki.CheckShared(cfg, n.fs(), start)
			if len(test.says) == 0 {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil {
				t.Fatal("it was accepted")
			}
			for _, says := range test.says {
				if !strings.Contains(err.Error(), says) {
					t.Errorf("%q is not told in\n%s", says, err)
				}
			}
			if fault.Hint(err) == "" {
				t.Error("no hint")
			}
			if after := n.snapshot(); len(after) != len(before) {
				t.Error("files changed")
			}
		})
	}
}

// ca.crt may also contain the CAs above the cluster's CA. As in kubeadm, the first
// one signs.
func TestIntermediateCA(t *testing.T) {
	rig.Tool(t, "openssl")
	root, n := newNode(t), newNode(t)
	root.init(testConfig(), start)
	chain := intermediate(t, root)
	n.write(dir+"ca.crt", chain.certs)
	n.write(dir+"ca.key", chain.key)
	n.init(testConfig(), time.Now().Add(time.Second)) // openssl uses the machine's clock
	if !bytes.Equal(n.read(dir+"ca.crt"), chain.certs) {
		t.Error("ca.crt was rewritten")
	}
	leaf := certificate(t, n.read(dir+"apiserver.crt"))
	if err := leaf.CheckSignatureFrom(certificate(t, chain.certs)); err != nil {
		t.Error(err)
	}
	for _, k := range []string{"admin", "scheduler"} {
		clusters := kubeconfig(t, n.read("/etc/kubernetes/"+k+".conf"))["clusters"].([]any)
		data := decode64(t, clusters[0].(map[string]any)["cluster"].(map[string]any)["certificate-authority-data"])
		if !certificate(t, data).Equal(certificate(t, chain.certs)) {
			t.Errorf("%s.conf trusts something else", k)
		}
	}
	// kubeadm must keep everything that Airlift created.
	n.withoutLinks()
	before := n.snapshot()
	for _, version := range oracle.Versions {
		n.configure(version, "")
		n.kubeadm(version, "init", "phase", "certs", "all", "--config", "/kubeadm.yaml")
		for _, k := range []string{"admin", "super-admin", "controller-manager", "scheduler"} {
			n.kubeadm(version, "init", "phase", "kubeconfig", k, "--config", "/kubeadm.yaml")
		}
	}
	for file, data := range before {
		if !bytes.Equal(n.read(file), data) {
			t.Errorf("kubeadm replaced %s", file)
		}
	}
}

// TestKubeadmsFilesAreKept runs Airlift's phases on files that kubeadm created.
func TestKubeadmsFilesAreKept(t *testing.T) {
	for _, version := range oracle.Versions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			cfg := testConfig()
			cfg.KubernetesVersion = version
			n.configure(version, "")
			n.kubeadm(version, "init", "phase", "certs", "all", "--config", "/kubeadm.yaml")
			n.kubeadm(version, "init", "phase", "kubeconfig", "all", "--config", "/kubeadm.yaml")
			// kubeadm uses the machine's clock, with a resolution of a second.
			written, kept := n.init(cfg, time.Now().Add(time.Second))
			if len(written) > 0 || len(kept) != 2*10+2+5 {
				t.Errorf("wrote %v, kept %d", written, len(kept))
			}
			// A control plane that joins creates keys of the same type as the
			// cluster's.
			joining := *cfg
			joining.ControlPlane = true
			n.remove(dir+"apiserver.crt", dir+"apiserver.key")
			n.init(&joining, time.Now().Add(time.Second))
			if kind := kindOf(parse(t, block(t, n.read(dir+"apiserver.key")))); kind != "RSA 2048" {
				t.Errorf("a joining control plane made a key of kind %s", kind)
			}
		})
	}
}

// A v1beta3 configuration has no periods. The defaults are one year, and ten years
// for CAs.
func TestPeriods(t *testing.T) {
	n := newNode(t)
	cfg := testConfig()
	cfg.CertificateValidityPeriod, cfg.CACertificateValidityPeriod = 0, 0
	n.init(cfg, start)
	if got := certificate(t, n.read(dir+"apiserver.crt")).NotAfter; !got.Equal(start.Add(config.CertificateValidity)) {
		t.Errorf("a certificate ends at %s", got)
	}
	if got := certificate(t, n.read(dir+"ca.crt")).NotAfter; !got.Equal(start.Add(config.CACertificateValidity)) {
		t.Errorf("a CA ends at %s", got)
	}
}

// chain is an intermediate CA: its certificate, followed by the root CA's certificate.
type chain struct{ certs, key []byte }

// intermediate creates an intermediate CA below a node's CA, with openssl.
func intermediate(t *testing.T, root node) chain {
	t.Helper()
	d := t.TempDir()
	openssl := func(args ...string) {
		t.Helper()
		cmd := exec.Command("openssl", args...)
		cmd.Dir = d
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("openssl %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	for _, f := range []string{"ca.crt", "ca.key"} {
		if err := os.WriteFile(filepath.Join(d, f), root.read(dir+f), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(d, "ext"), []byte("basicConstraints=critical,CA:true\nkeyUsage=critical,keyCertSign,cRLSign\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", "i.key")
	openssl("req", "-new", "-key", "i.key", "-subj", "/CN=middle", "-out", "i.csr")
	openssl("x509", "-req", "-in", "i.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "3000", "-extfile", "ext", "-out", "i.crt")
	return chain{
		certs: []byte(read(t, filepath.Join(d, "i.crt")) + read(t, filepath.Join(d, "ca.crt"))),
		key:   []byte(read(t, filepath.Join(d, "i.key"))),
	}
}
