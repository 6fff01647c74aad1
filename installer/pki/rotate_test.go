package pki_test

import (
	"bytes"
	"io/fs"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"airlift/installer/config"
	"airlift/installer/pki"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/rig"
)

// stages are the functions of a rotation in order, as a control plane calls them.
var stages = map[string]func(*config.Config, fs.FS, time.Time) (pki.Result, error){
	"new": func(c *config.Config, host fs.FS, now time.Time) (pki.Result, error) {
		return pki.NewCAs(c, host, now, nil)
	},
	"distribute": pki.DistributeCAs,
	"switch":     pki.SwitchCAs,
	"reissue":    reissueAll,
	"finish":     pki.FinishCAs,
	"cancel":     pki.CancelCAs,
}

// reissueAll renews what the new CAs have not signed.
func reissueAll(cfg *config.Config, host fs.FS, now time.Time) (all pki.Result, err error) {
	names, err := pki.Reissuable(cfg, host, now)
	for _, name := range names {
		made := pki.Result{}
		if name == "kubelet" {
			made, err = pki.ReissueKubelet(cfg, host, now)
		} else {
			made, err = pki.Renew(cfg, host, now, name)
		}
		if err != nil {
			return all, err
		}
		all.Files = append(all.Files, made.Files...)
	}
	return all, err
}

// stage runs stages, and writes at most limit files of the last one.
func (n node) stage(cfg *config.Config, limit int, names ...string) (files int) {
	n.t.Helper()
	for i, name := range names {
		result, err := stages[name](cfg, n.fs(), time.Now())
		if err != nil {
			n.t.Fatalf("%s: %v", name, err)
		}
		for j, f := range result.Files {
			if i == len(names)-1 && j >= limit {
				break
			}
			n.remove(f.Path)
			put(n.t, n.root, f)
		}
		files = len(result.Files)
	}
	return files
}

const all = 1 << 20

// openssl verifies a file of the node with a CA file of the node.
func (n node) verifies(ca, file string) (bool, string) {
	out, err := exec.Command("openssl", "verify", "-CAfile", filepath.Join(n.root, ca), filepath.Join(n.root, file)).CombinedOutput()
	return err == nil, string(out)
}

// signed are certificates and the CA that must sign each.
var signed = map[string]string{
	"apiserver.crt": "ca.crt", "apiserver-kubelet-client.crt": "ca.crt", "front-proxy-client.crt": "front-proxy-ca.crt",
	"etcd/server.crt": "etcd/ca.crt", "etcd/peer.crt": "etcd/ca.crt", "apiserver-etcd-client.crt": "etcd/ca.crt",
}

// signedBy fails unless the CAs in a directory sign all certificates of the node.
func (n node) signedBy(caDir string) {
	n.t.Helper()
	for cert, ca := range signed {
		if ok, out := n.verifies(path.Join(caDir, ca), path.Join(dir, cert)); !ok {
			n.t.Errorf("%s with %s: %s", cert, path.Join(caDir, ca), out)
		}
	}
	if ok, out := n.verifies(path.Join(caDir, "ca.crt"), kubeletCert); !ok {
		n.t.Errorf("the kubelet's certificate: %s", out)
	}
	admin := kubeconfig(n.t, n.read("/etc/kubernetes/admin.conf"))
	user := admin["users"].([]any)[0].(map[string]any)["user"].(map[string]any)
	n.write("/tmp/admin.crt", decode64(n.t, user["client-certificate-data"]))
	if ok, out := n.verifies(path.Join(caDir, "ca.crt"), "/tmp/admin.crt"); !ok {
		n.t.Errorf("admin.conf: %s", out)
	}
}

// trusts fails unless ca.crt and all kubeconfigs contain these certificates.
func (n node) trusts(files ...string) {
	n.t.Helper()
	var want []byte
	for _, f := range files {
		want = append(want, n.read(f)...)
	}
	if got := n.read(dir + "ca.crt"); !bytes.Equal(got, want) {
		n.t.Errorf("ca.crt is\n%s", got)
	}
	for _, name := range pki.KubeconfigNames() {
		doc := kubeconfig(n.t, n.read("/etc/kubernetes/"+name+".conf"))
		cluster := doc["clusters"].([]any)[0].(map[string]any)["cluster"].(map[string]any)
		if got := decode64(n.t, cluster["certificate-authority-data"]); !bytes.Equal(got, want) {
			n.t.Errorf("%s.conf trusts\n%s", name, got)
		}
	}
}

const (
	formerDir = dir + pki.FormerCAs + "/"
	nextDir   = dir + pki.NextCAs + "/"
)

func TestRotateCAs(t *testing.T) {
	rig.Tool(t, "openssl")
	for _, algorithm := range []string{"", "RSA-2048"} {
		t.Run("keys "+algorithm, func(t *testing.T) {
			n, cfg := newNode(t), testConfig()
			cfg.EncryptionAlgorithm = algorithm
			n.init(cfg, time.Now())
			n.signedBy(dir)
			n.stage(cfg, all, "new", "distribute")
			n.trusts(formerDir+"ca.crt", nextDir+"ca.crt")
			n.signedBy(formerDir)
			for _, ca := range []string{"ca.crt", "front-proxy-ca.crt", "etcd/ca.crt"} {
				if bytes.Equal(n.read(formerDir+ca), n.read(nextDir+ca)) {
					t.Errorf("the new CA %s is the old one", ca)
				}
			}
			n.stage(cfg, all, "switch", "reissue")
			n.trusts(nextDir+"ca.crt", formerDir+"ca.crt")
			n.signedBy(nextDir)
			n.signedBy(dir)
			n.stage(cfg, all, "finish")
			n.trusts(nextDir + "ca.crt")
			n.remove(dir + pki.RotationDir)
			n.signedBy(dir)
			// What init would create is there, and is valid.
			if written, _ := n.init(cfg, time.Now()); len(written) > 0 {
				t.Errorf("init writes %v", written)
			}
		})
	}
}

// TestRotateCAsInterrupted stops each stage after each of its files, and runs it again.
func TestRotateCAsInterrupted(t *testing.T) {
	rig.Tool(t, "openssl")
	cfg := testConfig()
	origin := newNode(t)
	origin.init(cfg, time.Now())
	order := []string{"new", "distribute", "switch", "reissue", "finish"}
	for i, name := range order {
		count := origin.twin().stage(cfg, 0, name)
		if count == 0 {
			t.Fatalf("%s changes nothing", name)
		}
		for files := range count {
			n := origin.twin()
			n.stage(cfg, files, name)
			again := order[i:]
			if name == "reissue" { // a command repeats the switch
				again = order[i-1:]
			}
			n.stage(cfg, all, again...)
			n.trusts(nextDir + "ca.crt")
			n.signedBy(nextDir)
			if t.Failed() {
				t.Fatalf("%s, stopped after %d of %d files", name, files, count)
			}
		}
		origin.stage(cfg, all, name)
	}
}

func TestCancelRotation(t *testing.T) {
	n, cfg := newNode(t), testConfig()
	n.init(cfg, time.Now())
	before := n.snapshot()
	n.stage(cfg, all, "new", "distribute", "cancel")
	n.remove(dir + pki.RotationDir)
	for file, data := range n.snapshot() {
		if !bytes.Equal(data, before[file]) && !strings.HasSuffix(file, ".conf") {
			t.Errorf("%s has changed", file)
		}
	}
	n.trusts(dir + "ca.crt")
}

// The other control planes get the new CAs, and a worker only their certificates.
func TestRotationOfOtherNodes(t *testing.T) {
	rig.Tool(t, "openssl")
	first, cfg := newNode(t), testConfig()
	first.init(cfg, time.Now())
	second := first.twin()
	first.stage(cfg, all, "new")
	files, err := pki.NextCAFiles(cfg, first.fs())
	if err != nil || len(files) != 6 || files["etcd-ca.key"] == nil {
		t.Fatalf("%d files, %v", len(files), err)
	}
	made, err := pki.NewCAs(cfg, second.fs(), time.Now(), files)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range made.Files {
		put(t, second.root, f)
	}
	for _, file := range []string{"ca.key", "front-proxy-ca.crt", "etcd/ca.key"} {
		if !bytes.Equal(first.read(nextDir+file), second.read(nextDir+file)) {
			t.Errorf("%s differs", file)
		}
	}
	files["etcd-ca.key"] = files["ca.key"]
	if _, err := pki.NewCAs(cfg, newWith(t, first).fs(), time.Now(), files); err == nil || !strings.Contains(err.Error(), "its key does not match") {
		t.Errorf("a key of another CA: %v", err)
	}

	// A worker: no keys, and a request that the new CA signs.
	worker := newNode(t)
	for _, file := range []string{dir + "ca.crt", "/etc/kubernetes/kubelet.conf", kubeletCert} {
		worker.write(file, first.read(file))
	}
	both := slices.Concat(first.read(nextDir+"ca.crt"), first.read(dir+"ca.crt"))
	trust, err := pki.TrustCAs(worker.fs(), dir+"ca.crt", both)
	if err != nil || len(trust.Files) != 2 {
		t.Fatalf("%+v, %v", trust, err)
	}
	if signed, err := pki.KubeletSignedBy(worker.fs(), first.read(nextDir+"ca.crt")); err != nil || signed {
		t.Errorf("signed: %t, %v", signed, err)
	}
	request, err := pki.RequestKubelet(cfg, worker.fs(), first.read(nextDir+"ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	worker.write("/tmp/k.csr", request.CSR)
	sign := exec.Command("openssl", "x509", "-req", "-in", filepath.Join(worker.root, "tmp/k.csr"), "-days", "1",
		"-CA", filepath.Join(first.root, nextDir, "ca.crt"), "-CAkey", filepath.Join(first.root, nextDir, "ca.key"))
	certPEM, err := sign.Output()
	if err != nil {
		t.Fatal(err)
	}
	answer, err := request.Files(worker.fs(), time.Now(), certPEM)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range answer.Files {
		worker.remove(f.Path)
		put(t, worker.root, f)
	}
	if signed, err := pki.KubeletSignedBy(worker.fs(), first.read(nextDir+"ca.crt")); err != nil || !signed {
		t.Errorf("signed: %t, %v", signed, err)
	}
	if name := pki.NodeName(worker.fs()); name != cfg.NodeRegistration.Name {
		t.Errorf("the node's name is %q", name)
	}
	if again, err := pki.RequestKubelet(cfg, worker.fs(), first.read(nextDir+"ca.crt")); err != nil || again != nil {
		t.Errorf("again: %+v, %v", again, err)
	}
}

// TestRotationAfterTheOldCAHasExpired: the last two stages end a rotation that began late. The old
// CA does not sign any more.
func TestRotationAfterTheOldCAHasExpired(t *testing.T) {
	cfg, later := testConfig(), time.Now().Add(72*time.Hour)
	cfg.CACertificateValidityPeriod = 48 * time.Hour
	n := newNode(t)
	n.init(cfg, time.Now())
	cfg.CACertificateValidityPeriod = 0
	n.stage(cfg, all, "new", "distribute")
	for name, run := range map[string]func(*config.Config, fs.FS, time.Time) (pki.Result, error){"distribute": pki.DistributeCAs, "cancel": pki.CancelCAs} {
		if _, err := run(cfg, n.fs(), later); err == nil || !strings.Contains(err.Error(), formerDir+"ca.crt exists but cannot be used: it expired") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"switch", "reissue", "finish"} {
		result, err := stages[name](cfg, n.fs(), later)
		if err != nil || len(result.Files) == 0 {
			t.Fatalf("%s: %d files, %v", name, len(result.Files), err)
		}
		for _, f := range result.Files {
			n.remove(f.Path)
			put(t, n.root, f)
		}
	}
	n.trusts(nextDir + "ca.crt")
}

// newWith returns a node with the files of another one, without the files of its rotation.
func newWith(t *testing.T, other node) node {
	n := other.twin()
	n.remove(dir + pki.RotationDir)
	return n
}

func TestRotationRefusals(t *testing.T) {
	cfg := testConfig()
	for name, c := range map[string]struct {
		spoil func(n node)
		stage string
		says  string
	}{
		"external CA":        {func(n node) { n.remove(dir + "etcd/ca.key") }, "new", "managed externally"},
		"no CA":              {func(n node) { n.remove(dir + "ca.crt") }, "new", "ca.crt"},
		"two certificates":   {func(n node) { n.write(dir+"ca.crt", append(n.read(dir+"ca.crt"), n.read(dir+"etcd/ca.crt")...)) }, "new", "2 certificates"},
		"not begun":          {func(node) {}, "distribute", "no rotation of the CAs has begun"},
		"switch too early":   {func(n node) { n.stage(cfg, all, "new") }, "switch", "does not contain the new CA"},
		"finish too early":   {func(n node) { n.stage(cfg, all, "new", "distribute") }, "finish", "does not begin with the new CA"},
		"certificates left":  {func(n node) { n.stage(cfg, all, "new", "distribute", "switch") }, "finish", "admin.conf"},
		"cancel too late":    {func(n node) { n.stage(cfg, all, "new", "distribute", "switch") }, "cancel", "cannot be cancelled any more"},
		"a key that is lost": {func(n node) { n.stage(cfg, all, "new"); n.remove(nextDir + "ca.key") }, "distribute", "rotation"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.init(cfg, time.Now())
			c.spoil(n)
			_, err := stages[c.stage](cfg, n.fs(), time.Now())
			if err == nil || !strings.Contains(err.Error(), c.says) || fault.Hint(err) == "" {
				t.Errorf("%v (hint %q)", err, fault.Hint(err))
			}
		})
	}
}
