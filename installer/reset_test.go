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

// hostWith is a host in a folder with static pods as init or join writes them.
func hostWith(t *testing.T, change func(*config.Config), members ...render.EtcdMember) *Node {
	t.Helper()
	cfg := &config.Config{Facts: config.Facts{Hostname: "one", NodeIP: "10.1.2.3", CgroupDriver: "systemd"},
		Images: map[string]string{"etcd": "etcd:3.5.16-0", "kube-apiserver": "a:1", "kube-controller-manager": "c:1", "kube-scheduler": "s:1"}}
	cfg.KubernetesVersion = "v1.29.15"
	if change != nil {
		change(cfg)
	}
	cfg.CompleteInit()
	h, err := host.OpenFolder(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	n := &Node{Config: cfg, Host: h, Console: &Console{Out: new(bytes.Buffer)}}
	if err := n.controlPlane()(t.Context()); err != nil {
		t.Fatal(err)
	}
	if cfg.Etcd.External != nil {
		return n
	}
	pod, err := render.Etcd(cfg, members...)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.writeManifest(pod); err != nil {
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
	claimed := func(n *Node) *Node {
		if err := n.claimEtcd(); err != nil {
			t.Fatal(err)
		}
		return n
	}
	gone := func(n *Node, names ...string) *Node {
		for _, name := range names {
			if err := os.Remove(n.Host.Path(filepath.Join(config.ManifestsDir, name+".yaml"))); err != nil {
				t.Fatal(err)
			}
		}
		return n
	}
	for _, tt := range []struct {
		name   string
		node   *Node
		want   *localEtcd
		joined bool
	}{
		{"init's", hostWith(t, nil), &localEtcd{"https://10.1.2.3:2380", "https://10.1.2.3:2379", "/var/lib/etcd", "/etc/kubernetes/pki"}, false},
		{"in other folders", hostWith(t, elsewhere), &localEtcd{"https://10.1.2.3:2380", "https://10.1.2.3:2379", "/data/etcd", "/data/pki"}, false},
		{"join's", hostWith(t, nil, render.EtcdMember{Name: "zero", PeerURL: "https://10.1.2.2:2380"}),
			&localEtcd{"https://10.1.2.3:2380", "https://10.1.2.3:2379", "/var/lib/etcd", "/etc/kubernetes/pki"}, true},
		{"join's, stopped before etcd", claimed(gone(hostWith(t, nil), "etcd")),
			&localEtcd{"https://10.1.2.3:2380", "https://10.1.2.3:2379", "/var/lib/etcd", "/etc/kubernetes/pki"}, true},
		{"an external one on this host", hostWith(t, onThisHost), nil, false},
		{"an external one", hostWith(t, external), nil, false},
		{"a worker's", gone(hostWith(t, nil), "etcd", "kube-apiserver"), nil, false},
	} {
		got, err := tt.node.findEtcd()
		if err != nil || (got == nil) != (tt.want == nil) || got != nil && *got != *tt.want {
			t.Errorf("%s: etcd is %+v (%v), want %+v", tt.name, got, err, tt.want)
		}
		if tt.node.joined() != tt.joined {
			t.Errorf("%s: joined is %t", tt.name, !tt.joined)
		}
	}

	broken := hostWith(t, nil)
	if err := os.WriteFile(broken.Host.Path(etcdManifest), []byte("kind: [Pod"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := broken.findEtcd(); err == nil || !strings.Contains(err.Error(), "etcd.yaml") {
		t.Errorf("a static pod that cannot be read: %v", err)
	}
}

// TestResetAsksEtcdFirst: nothing answers here, so only a forced reset goes on.
func TestResetAsksEtcdFirst(t *testing.T) {
	n := hostWith(t, func(c *config.Config) { c.Facts.NodeIP = "127.0.0.1" })
	if err := n.certs()(t.Context()); err != nil {
		t.Fatal(err)
	}
	err := n.resetPreflight(t.Context())
	if fault.ExitCode(err) != fault.Preflight || !strings.Contains(err.Error(), "127.0.0.1:2379") || !strings.Contains(fault.Hint(err), "--force") {
		t.Errorf("error %v, hint %q", err, fault.Hint(err))
	}
	if err := n.removeEtcdMember(t.Context()); err == nil {
		t.Error("the member that nobody could be told about is gone")
	}
	n.Resetting.Force = true
	if err := n.resetPreflight(t.Context()); err != nil {
		t.Error(err)
	}
	if err := n.removeEtcdMember(t.Context()); err != nil {
		t.Error(err)
	}
	if out := n.Console.Out.(*bytes.Buffer).String(); !strings.Contains(out, "warning: etcd's member stays") {
		t.Errorf("said: %q", out)
	}
}

// TestPlanReset: reset goes by the ledger; without one it changes nothing on a
// bare host and refuses a node, unless that is asked for.
func TestPlanReset(t *testing.T) {
	at := func(t *testing.T, files ...string) *Node {
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
		return &Node{Config: &config.Config{}, Host: h, Console: &Console{Out: new(bytes.Buffer)}}
	}
	bare := at(t, "/var/lib/etcd/member/wal", "/var/lib/containerd/x", "/var/lib/cni/networks/other/10.0.0.1")
	if plan, err := bare.PlanReset(); plan != nil || err != nil {
		t.Errorf("a bare host: %v %v", plan, err)
	}
	if err := bare.RunReset(t.Context()); err != nil {
		t.Error(err)
	}
	if out := bare.Console.Out.(*bytes.Buffer).String(); !strings.Contains(out, "Airlift installed nothing on this host") || !bare.exists("/var/lib/etcd/member/wal") {
		t.Errorf("said %q", out)
	}

	made := []string{"/etc/kubernetes/admin.conf", "/etc/kubernetes/pki/ca.key", "/etc/kubernetes/manifests/kube-apiserver.yaml", "/var/lib/kubelet/config.yaml", "/var/lib/etcd/member/wal", "/data/etcd/member/wal"}
	kubeadms := at(t, made...)
	kubeadms.Resetting.Force = true
	plan, err := kubeadms.PlanReset()
	if plan != nil || fault.ExitCode(err) != fault.Preflight || !strings.Contains(fault.Hint(err), "--without-ledger") ||
		!strings.Contains(err.Error(), "/etc/kubernetes/pki: it contains certificates") || strings.Contains(err.Error(), "/etcd") {
		t.Errorf("kubeadm's node: %v %v, hint %s", plan, err, fault.Hint(err))
	}
	if exists := kubeadms.exists(host.LedgerPath); exists {
		t.Error("a ledger was written")
	}
	// Only its own manifest names etcd's data.
	stacked := at(t, append(made, "/etc/kubernetes/manifests/etcd.yaml")...)
	stacked.Resetting.WithoutLedger = true
	plan, err = stacked.PlanReset()
	if err != nil {
		t.Fatal(err)
	}
	text := DescribePlan(plan)
	if !strings.Contains(text, "/data/etcd: it contains etcd's data") || strings.Contains(text, "/var/lib/etcd") {
		t.Errorf("the plan:\n%s", text)
	}
}
