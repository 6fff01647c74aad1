package installer

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"airlift/fault"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/render"
)

// hostWith returns a host directory with static pods as init or join writes
// them.
func hostWith(t *testing.T, change func(*config.Config), members ...render.EtcdMember) *Init {
	t.Helper()
	cfg := &config.Config{Facts: config.Facts{Hostname: "one", NodeIP: "10.1.2.3", CgroupDriver: "systemd"},
		Images: map[string]string{"etcd": "etcd:3.5.16-0", "kube-apiserver": "a:1", "kube-controller-manager": "c:1", "kube-scheduler": "s:1"}}
	cfg.KubernetesVersion = "v1.29.15"
	if change != nil {
		change(cfg)
	}
	cfg.CompleteInit()
	h, err := host.OpenDirectory(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	n := NewInit(&Plan{role: firstControlPlane, bundle: new(Bundle), config: cfg}, InitOptions{}, h, &Console{Out: new(bytes.Buffer)})
	if err := n.controlPlane.staticPods()(t.Context()); err != nil {
		t.Fatal(err)
	}
	if cfg.Etcd.External != nil {
		return n
	}
	pod, err := render.Etcd(cfg, members...)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.controlPlane.writeStaticPod(pod); err != nil {
		t.Fatal(err)
	}
	return n
}

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
	claimed := func(n *Init) *Init {
		if err := n.claimEtcd(); err != nil {
			t.Fatal(err)
		}
		return n
	}
	gone := func(n *Init, names ...string) *Init {
		for _, name := range names {
			if err := os.Remove(n.host.Path(filepath.Join(config.ManifestsDir, name+".yaml"))); err != nil {
				t.Fatal(err)
			}
		}
		return n
	}
	for _, tt := range []struct {
		name   string
		node   *Init
		want   *localEtcd
		joined bool
	}{
		{"init's", hostWith(t, nil), &localEtcd{"https://10.1.2.3:2380", "https://10.1.2.3:2379", "/var/lib/etcd", "/etc/kubernetes/pki"}, false},
		{"in other directories", hostWith(t, elsewhere), &localEtcd{"https://10.1.2.3:2380", "https://10.1.2.3:2379", "/data/etcd", "/data/pki"}, false},
		{"join's", hostWith(t, nil, render.EtcdMember{Name: "zero", PeerURL: "https://10.1.2.2:2380"}),
			&localEtcd{"https://10.1.2.3:2380", "https://10.1.2.3:2379", "/var/lib/etcd", "/etc/kubernetes/pki"}, true},
		{"join's, stopped before etcd", claimed(gone(hostWith(t, nil), "etcd")),
			&localEtcd{"https://10.1.2.3:2380", "https://10.1.2.3:2379", "/var/lib/etcd", "/etc/kubernetes/pki"}, true},
		{"an external one on this host", hostWith(t, onThisHost), nil, false},
		{"an external one", hostWith(t, external), nil, false},
		{"a worker's", gone(hostWith(t, nil), "etcd", "kube-apiserver"), nil, false},
	} {
		got, err := findEtcd(tt.node.host)
		if err != nil || (got == nil) != (tt.want == nil) || got != nil && *got != *tt.want {
			t.Errorf("%s: etcd is %+v (%v), want %+v", tt.name, got, err, tt.want)
		}
		if joined(tt.node.host) != tt.joined {
			t.Errorf("%s: joined is %t", tt.name, !tt.joined)
		}
	}

	broken := hostWith(t, nil)
	if err := os.WriteFile(broken.host.Path(etcdManifest), []byte("kind: [Pod"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := findEtcd(broken.host); err == nil || !strings.Contains(err.Error(), "etcd.yaml") {
		t.Errorf("a static pod that cannot be read: %v", err)
	}
}

// TestResetAsksEtcdFirst: no etcd answers here, so only a forced reset
// continues.
func TestResetAsksEtcdFirst(t *testing.T) {
	n := hostWith(t, func(c *config.Config) { c.Facts.NodeIP = "127.0.0.1" })
	if err := n.controlPlane.certs()(t.Context()); err != nil {
		t.Fatal(err)
	}
	r := newReset(config.Reset{}, "", n.machine)
	err := r.preflight(t.Context())
	if fault.ExitCode(err) != fault.Preflight || !strings.Contains(err.Error(), "127.0.0.1:2379") || !strings.Contains(fault.Hint(err), "--force") {
		t.Errorf("error %v, hint %q", err, fault.Hint(err))
	}
	if err := r.etcd.remove(t.Context()); err == nil {
		t.Error("the member that nobody could be told about is gone")
	}
	r = newReset(config.Reset{Force: true}, "", n.machine)
	if err := r.preflight(t.Context()); err != nil {
		t.Error(err)
	}
	if err := r.etcd.remove(t.Context()); err != nil {
		t.Error(err)
	}
	if out := r.console.Out.(*bytes.Buffer).String(); !strings.Contains(out, "warning: this host's member stays") {
		t.Errorf("said: %q", out)
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
		r, err := PlanReset(c, "", h, &Console{Out: new(bytes.Buffer)})
		return r, h, err
	}
	bare, _, err := at(t, config.Reset{}, "/var/lib/etcd/member/wal", "/var/lib/containerd/x", "/var/lib/cni/networks/other/10.0.0.1")
	if err != nil || !bare.Empty() {
		t.Fatalf("a bare host: %v %v", bare, err)
	}
	if err := bare.Run(t.Context()); err != nil {
		t.Error(err)
	}
	if out := bare.console.Out.(*bytes.Buffer).String(); !strings.Contains(out, "Airlift installed nothing on this host") || !bare.exists("/var/lib/etcd/member/wal") {
		t.Errorf("said %q", out)
	}

	made := []string{"/etc/kubernetes/admin.conf", "/etc/kubernetes/pki/ca.key", "/etc/kubernetes/manifests/kube-apiserver.yaml", "/var/lib/kubelet/config.yaml", "/var/lib/etcd/member/wal", "/data/etcd/member/wal"}
	kubeadms, h, err := at(t, config.Reset{Force: true}, made...)
	if kubeadms != nil || fault.ExitCode(err) != fault.Preflight || !strings.Contains(fault.Hint(err), "--without-ledger") ||
		!strings.Contains(err.Error(), "/etc/kubernetes/pki: it contains certificates") || strings.Contains(err.Error(), "/etcd") {
		t.Errorf("kubeadm's node: %v %v, hint %s", kubeadms, err, fault.Hint(err))
	}
	if exists := fileExists(h, host.LedgerPath); exists {
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
	if err := os.RemoveAll(stacked.host.Path("/etc/kubernetes/pki")); err != nil {
		t.Fatal(err)
	}
	left, err := stacked.remaining()
	if err != nil || !strings.Contains(left, "Not removed yet:") || !strings.Contains(left, "/data/etcd: it contains etcd's data") || strings.Contains(left, "/etc/kubernetes/pki") {
		t.Errorf("left after a failed reset (%v):\n%s", err, left)
	}
}
