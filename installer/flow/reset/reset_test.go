package reset

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"airlift/installer/config"
	"airlift/installer/desired"
	"airlift/installer/host"
	"airlift/installer/host/ledger"
	"airlift/installer/node"
	"airlift/installer/phases"
	"airlift/installer/pki"
	"airlift/installer/render"
	"airlift/installer/workflow"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/testcluster"
	"airlift/scripts/fixtures/testhost"
)

func TestEtcdOfThisHost(t *testing.T) {
	elsewhere := func(c *config.Config) {
		c.Etcd.Local.DataDir, c.Cluster.CertificatesDir = "/data/etcd", "/data/pki"
	}
	external := func(c *config.Config) {
		c.Etcd.External = &config.ExternalEtcd{Endpoints: []string{"https://10.9.9.9:2379"}}
	}
	onThisHost := func(c *config.Config) {
		c.Etcd.External = &config.ExternalEtcd{Endpoints: []string{"http://127.0.0.1:2379"}}
	}
	controlPlane := func(change func(*config.Config), members ...render.EtcdMember) *host.Host {
		h, _ := testhost.ControlPlane(t, change, members...)
		return h
	}
	gone := func(h *host.Host, names ...string) *host.Host {
		for _, name := range names {
			if err := os.Remove(h.Path(filepath.Join(config.ManifestsDir, name+".yaml"))); err != nil {
				t.Fatal(err)
			}
		}
		return h
	}
	stopped, cfg := testhost.ControlPlane(t, nil)
	gone(stopped, "etcd")
	machine := node.NewMachine(stopped, &workflow.Console{Out: new(bytes.Buffer)})
	n := phases.NewNode(&phases.Plan{Role: phases.FirstControlPlane, Config: cfg}, machine)
	if err := n.Apply(t.Context(), desired.List{Claims: n.EtcdClaim()}); err != nil {
		t.Fatal(err)
	}
	etcd := func(data, certificates string) *node.LocalEtcd {
		return &node.LocalEtcd{PeerURL: "https://10.1.2.3:2380", ClientURL: "https://10.1.2.3:2379", DataDir: data, Certificates: certificates}
	}
	for _, tt := range []struct {
		name   string
		host   *host.Host
		want   *node.LocalEtcd
		joined bool
	}{
		{"init's", controlPlane(nil), etcd("/var/lib/etcd", "/etc/kubernetes/pki"), false},
		{"in other directories", controlPlane(elsewhere), etcd("/data/etcd", "/data/pki"), false},
		{"join's", controlPlane(nil, render.EtcdMember{Name: "zero", PeerURL: "https://10.1.2.2:2380"}),
			etcd("/var/lib/etcd", "/etc/kubernetes/pki"), true},
		{"join's, stopped before etcd", stopped,
			etcd("/var/lib/etcd", "/etc/kubernetes/pki"), true},
		{"an external one on this host", controlPlane(onThisHost), nil, false},
		{"an external one", controlPlane(external), nil, false},
		{"a worker's", gone(controlPlane(nil), "etcd", "kube-apiserver"), nil, false},
	} {
		got, err := node.FindEtcd(tt.host)
		if err != nil || (got == nil) != (tt.want == nil) || got != nil && *got != *tt.want {
			t.Errorf("%s: etcd is %+v (%v), want %+v", tt.name, got, err, tt.want)
		}
		if phases.Joined(tt.host) != tt.joined {
			t.Errorf("%s: joined is %t", tt.name, !tt.joined)
		}
	}

	broken := controlPlane(nil)
	if err := os.WriteFile(broken.Path(node.EtcdManifest), []byte("kind: [Pod"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := node.FindEtcd(broken); err == nil || !strings.Contains(err.Error(), "etcd.yaml") {
		t.Errorf("a static pod that cannot be read: %v", err)
	}
}

// TestResetAsksEtcdFirst: no etcd answers here, so only a forced reset
// continues.
func TestResetAsksEtcdFirst(t *testing.T) {
	h, cfg := testhost.ControlPlane(t, func(c *config.Config) { c.Facts.NodeIP = "127.0.0.1" })
	m := node.NewMachine(h, &workflow.Console{Out: new(bytes.Buffer)})
	made, err := pki.Ensure(cfg, m.Files(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(m.Write(made.Files...), h.Claim(ledger.Claim{Path: config.KubeletDir})); err != nil {
		t.Fatal(err)
	}
	r := newReset(config.Reset{}, "", m)
	err = r.preflight(t.Context())
	if fault.ExitCode(err) != fault.Preflight || !strings.Contains(err.Error(), "127.0.0.1:2379") || !strings.Contains(fault.Hint(err), "--force") {
		t.Errorf("error %v, hint %q", err, fault.Hint(err))
	}
	if err := r.etcd.remove(t.Context()); err == nil {
		t.Error("the member that nobody could be told about is gone")
	}
	again, _ := testhost.ControlPlane(t, func(c *config.Config) { c.Facts.NodeIP = "127.0.0.1" })
	interrupted := node.NewMachine(again, &workflow.Console{Out: new(bytes.Buffer)})
	if err := errors.Join(interrupted.Write(made.Files...), again.Records().BeginReset(ledger.Identity{})); err != nil {
		t.Fatal(err)
	}
	second := newReset(config.Reset{}, "", interrupted)
	if err := errors.Join(second.preflight(t.Context()), second.etcd.remove(t.Context())); err != nil {
		t.Errorf("after a reset that has stopped etcd: %v", err)
	}
	r = newReset(config.Reset{Force: true}, "", m)
	if err := r.preflight(t.Context()); err != nil {
		t.Error(err)
	}
	if err := r.etcd.remove(t.Context()); err != nil {
		t.Error(err)
	}
	if out := r.Console.Out.(*bytes.Buffer).String(); !strings.Contains(out, "warning: it is not known whether this host still has a member") {
		t.Errorf("said: %q", out)
	}
}

// TestResetKeepsAnotherToolsNode: with a ledger that has no kubelet, the node on the host is another tool's. Its etcd is not
// asked, and nothing says that the node goes.
func TestResetKeepsAnotherToolsNode(t *testing.T) {
	root := t.TempDir()
	put(t, root, "/etc/example", "theirs")
	h, _, unlock := open(t, root)
	if _, err := h.WriteFile("/etc/airlift-example", []byte("ours"), 0o600); err != nil {
		t.Fatal(err)
	}
	unlock()
	theirs, _ := testhost.ControlPlane(t, func(c *config.Config) { c.Facts.NodeIP = "127.0.0.1" })
	for path, text := range contents(t, theirs.Path(config.ManifestsDir)) {
		if text != "directory" {
			put(t, root, config.ManifestsDir+path, text)
		}
	}
	put(t, root, "/etc/kubernetes/pki/etcd/ca.crt", "the CA") // no etcd answers here
	put(t, root, node.KubeletConf, formerConf)
	before := contents(t, root)
	h, units, unlock := open(t, root)
	defer unlock()
	var printed strings.Builder
	r, err := New(config.Reset{}, "", h, &workflow.Console{Out: &printed})
	if err != nil || strings.Contains(r.Question(), "removes the Kubernetes node") || !strings.Contains(r.Question(), "Another tool's node on it stays") {
		t.Fatalf("%v, %s", err, r.Question())
	}
	if err := r.DryRun(t.Context()); err != nil || strings.Contains(printed.String(), "would fail") || strings.Contains(printed.String(), "remove-etcd-member") {
		t.Errorf("dry run: %v\n%s", err, printed.String())
	}
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"/etc/airlift-example", ledger.Path, ledger.StateDir} {
		delete(before, name)
	}
	sameContents(t, before, contents(t, root))
	if len(units.Done) > 0 || strings.Contains(printed.String(), "node remove") {
		t.Errorf("systemd: %q, printed:\n%s", units.Done, printed.String())
	}
}

// TestPlanReset: reset uses the ledger. Without a ledger it changes nothing on
// a bare host, and refuses a node unless --without-ledger is given.
func TestPlanReset(t *testing.T) {
	at := func(t *testing.T, c config.Reset, files ...string) (*Reset, *host.Host, error) {
		t.Helper()
		root := t.TempDir()
		for _, f := range files {
			if err := os.MkdirAll(filepath.Dir(root+f), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(root+f, []byte("kind: Pod\nspec: {volumes: [{name: etcd-data, hostPath: {path: /data/etcd}}]}\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		h, err := host.Open(root)
		if err != nil {
			t.Fatal(err)
		}
		r, err := New(c, "", h, &workflow.Console{Out: new(bytes.Buffer)})
		return r, h, err
	}
	bare, _, err := at(t, config.Reset{}, "/var/lib/etcd/member/wal", "/var/lib/containerd/x", "/var/lib/cni/networks/other/10.0.0.1")
	if err != nil || !bare.Empty() {
		t.Fatalf("a bare host: %v %v", bare, err)
	}
	if err := bare.Run(t.Context()); err != nil {
		t.Error(err)
	}
	if out := bare.Console.Out.(*bytes.Buffer).String(); !strings.Contains(out, "Airlift installed nothing on this host") || !bare.Exists("/var/lib/etcd/member/wal") {
		t.Errorf("said %q", out)
	}

	made := []string{"/etc/kubernetes/admin.conf", "/etc/kubernetes/pki/ca.key", "/etc/kubernetes/manifests/kube-apiserver.yaml", "/var/lib/kubelet/config.yaml", "/var/lib/etcd/member/wal", "/data/etcd/member/wal"}
	kubeadms, h, err := at(t, config.Reset{Force: true}, made...)
	if kubeadms != nil || fault.ExitCode(err) != fault.Preflight || !strings.Contains(fault.Hint(err), "--without-ledger") ||
		!strings.Contains(err.Error(), "/etc/kubernetes/pki: it contains certificates") || strings.Contains(err.Error(), "/etcd") {
		t.Errorf("kubeadm's node: %v %v, hint %s", kubeadms, err, fault.Hint(err))
	}
	if exists := node.FileExists(h, ledger.Path); exists {
		t.Error("a ledger was written")
	}
	// Only etcd's own manifest names its data directory.
	stacked, _, err := at(t, config.Reset{WithoutLedger: true}, append(made, "/etc/kubernetes/manifests/etcd.yaml")...)
	if err != nil {
		t.Fatal(err)
	}
	text := stacked.Describe()
	if !strings.Contains(text, "/data/etcd: it contains etcd's data") || strings.Contains(text, "/var/lib/etcd") {
		t.Errorf("the plan:\n%s", text)
	}
	// After a failed step, reset lists only what is still there.
	if err := os.RemoveAll(stacked.Host.Path("/etc/kubernetes/pki")); err != nil {
		t.Fatal(err)
	}
	left, err := stacked.remaining()
	if err != nil || !strings.Contains(left, "Not removed yet:") || !strings.Contains(left, "/data/etcd: it contains etcd's data") || strings.Contains(left, "/etc/kubernetes/pki") {
		t.Errorf("left after a failed reset (%v):\n%s", err, left)
	}
}

// TestWithoutLedgerOnAHostWithOne: an import wrote the ledger, and another tool made the node. The flag is never ignored.
func TestWithoutLedgerOnAHostWithOne(t *testing.T) {
	h := testcluster.Must(host.OpenDirectory(t.TempDir()))(t)
	for _, f := range []string{"/etc/kubernetes/pki/ca.key", "/var/lib/kubelet/config.yaml", "/etc/imported"} {
		if err := os.MkdirAll(filepath.Dir(h.Path(f)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(h.Path(f), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, flag := range []bool{false, true} {
		h := testcluster.Must(host.OpenDirectory(string(h.Root)))(t)
		h.Records().Assume(ledger.Entry{Kind: ledger.Owned, Name: "/etc/imported"})
		r, err := New(config.Reset{WithoutLedger: flag}, "", h, &workflow.Console{Out: new(bytes.Buffer)})
		if err != nil {
			t.Fatal(err)
		}
		text := r.Describe()
		if !strings.Contains(text, "/etc/imported") || strings.Contains(text, "/etc/kubernetes/pki: it contains certificates") != flag {
			t.Errorf("--without-ledger=%v removes:\n%s", flag, text)
		}
	}
}
