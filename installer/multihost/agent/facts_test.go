package agent

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/host/ledger"
	"airlift/installer/multihost/facts"
	"airlift/installer/multihost/seed"
	"airlift/installer/node"
	"airlift/installer/pki"
	"airlift/installer/render"
	"airlift/scripts/fixtures/layouts"
	"airlift/scripts/fixtures/testcluster"
	"airlift/scripts/fixtures/testhost"
)

// write writes a file of a host in a directory.
func write(t *testing.T, root, name, text string) {
	t.Helper()
	name = filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

// authorities writes the CAs and keys of a control plane.
func authorities(t *testing.T, h *host.Host) {
	t.Helper()
	made := testcluster.Must(pki.Ensure(testhost.Config(nil), os.DirFS(h.Path("/")), time.Now(), "ca", "front-proxy-ca", "etcd-ca", "sa"))(t)
	for _, f := range made.Files {
		write(t, string(h.Root), f.Path, string(f.Data))
	}
}

func factsOf(t *testing.T, root string) *facts.Facts {
	t.Helper()
	h, damaged := host.Open(root)
	if damaged != nil {
		h = host.OpenDamaged(root)
	}
	return ReadFacts(t.Context(), h, damaged)
}

func TestFactsOfABareHost(t *testing.T) {
	root := t.TempDir()
	write(t, root, "/etc/machine-id", "0123456789abcdef0123456789abcdef\n")
	if err := os.MkdirAll(filepath.Join(root, "/etc/cni/net.d"), 0o755); err != nil {
		t.Fatal(err)
	}
	f := factsOf(t, root)
	if f.MachineID != "0123456789abcdef0123456789abcdef" || f.Hostname == "" || f.Arch == "" || f.Time.IsZero() {
		t.Errorf("%+v", f)
	}
	if f.Node != nil || f.Cluster != nil || f.Unfinished != "" || f.Leftovers != nil || len(f.Unknown) > 0 {
		t.Errorf("a bare host has %+v", f)
	}
	if names := testcluster.Must(os.ReadDir(root))(t); len(names) != 1 {
		t.Errorf("written: %v", names)
	}
}

// Pain 27: hosts whose identity is not known are not taken for different hosts.
func TestFactsWithoutAMachineID(t *testing.T) {
	if f := factsOf(t, t.TempDir()); f.MachineID != "" || f.Unknown["machineID"] == "" {
		t.Errorf("%+v", f)
	}
}

func TestFactsOfLeftovers(t *testing.T) {
	root := t.TempDir()
	write(t, root, "/etc/rancher/k3s/config.yaml", "")
	write(t, root, "/var/lib/etcd/member/snap/db", "")
	if f := factsOf(t, root); f.Node != nil || !slices.Equal(f.Leftovers, []string{"/var/lib/etcd/member", "/etc/rancher"}) {
		t.Errorf("%+v", f)
	}
}

// Packages of Airlift's file make a host neither a node that Airlift manages nor one without other installations, also if the command that
// installs them was killed.
func TestFactsWithPackages(t *testing.T) {
	packages := func(root string) {
		h := testhost.Open(t, root)
		for _, e := range []ledger.Entry{{Kind: ledger.Package, Name: "chrony", Package: &ledger.PackageVersions{Manager: "dpkg", Version: "4"}}, {Kind: ledger.Owned, Name: ledger.PackagesDir}} {
			if err := h.Records().Record(e); err != nil {
				t.Fatal(err)
			}
		}
	}
	root := t.TempDir()
	if err := layouts.Kubeadm(layouts.Options{Version: "v1.36.3"}).WriteInside(root); err != nil {
		t.Fatal(err)
	}
	packages(root)
	if f := factsOf(t, root); f.Node == nil || f.Node.Airlift {
		t.Errorf("kubeadm's node: %+v", f.Node)
	}
	root = t.TempDir()
	write(t, root, "/etc/rancher/k3s/config.yaml", "")
	packages(root)
	if f := factsOf(t, root); !slices.Equal(f.Leftovers, []string{"/etc/rancher"}) {
		t.Errorf("k3s: %q", f.Leftovers)
	}
}

// Each distribution is found by its units alone, too, and a seed by its record until it has ended.
func TestFactsOfOtherDistributions(t *testing.T) {
	for _, name := range []string{
		"/etc/systemd/system/k3s.service", "/etc/systemd/system/k3s-agent.service", "/etc/systemd/system/k0scontroller.service", "/etc/systemd/system/k0sworker.service",
		"/usr/local/lib/systemd/system/rke2-server.service", "/usr/lib/systemd/system/rke2-agent.service", "/etc/systemd/system/snap.microk8s.daemon-kubelite.service",
		"/etc/systemd/system/snap.k8s.kubelet.service", "/var/lib/k8e", "/var/lib/embedded-cluster",
	} {
		root := t.TempDir()
		write(t, root, strings.TrimSuffix(name, ".service")+map[bool]string{true: ".service", false: "/x"}[strings.HasSuffix(name, ".service")], "")
		if f := factsOf(t, root); !slices.Equal(f.Leftovers, []string{name}) {
			t.Errorf("%s: %q", name, f.Leftovers)
		}
	}
	for state, want := range map[string]string{seed.Running: "site", seed.Done: "", seed.Ended: "", seed.Expired: ""} {
		root := t.TempDir()
		write(t, root, seed.RecordFile, `{"cluster": "site", "state": "`+state+`"}`)
		if f := factsOf(t, root); f.Seed != want {
			t.Errorf("%s: %q", state, f.Seed)
		}
	}
}

// A worker of kubeadm has no ledger.
func TestFactsOfAWorkerOfKubeadm(t *testing.T) {
	root := t.TempDir()
	h := testcluster.Must(host.OpenDirectory(root))(t)
	authorities(t, h)
	write(t, root, "/etc/kubernetes/kubelet.conf", string(pki.BootstrapKubeconfig("https://10.0.0.10:6443", testcluster.Must(os.ReadFile(h.Path("/etc/kubernetes/pki/ca.crt")))(t), "abcdef.0123456789abcdef")))
	write(t, root, "/usr/local/bin/kubelet", "#!/bin/sh\necho Kubernetes v1.36.3\n")
	f := factsOf(t, root)
	n := f.Node
	if n == nil || n.Role != "worker" || n.Airlift || n.Version != "v1.36.3" || n.APIServer != "https://10.0.0.10:6443" || n.Etcd {
		t.Fatalf("%+v", n)
	}
	if !strings.HasPrefix(n.CASHA256, "sha256:") || n.CASHA256s != nil {
		t.Errorf("the CA is %q", n.CASHA256)
	}
	if f.Cluster != nil || f.Unknown["cluster"] != "" {
		t.Errorf("a worker does not know the cluster: %+v", f)
	}
	if f.Unknown["node.name"] == "" {
		t.Error("kubelet.conf has no node's name, and that is not in unknown")
	}
}

// Pain 7: a control plane whose API server is down, refuses or hangs is a control plane, and its cluster is unknown.
func TestFactsWithoutAnAPIServer(t *testing.T) {
	hangs := testcluster.Must(net.Listen("tcp", "127.0.0.1:0"))(t) // the kernel accepts connections
	defer hangs.Close()
	closed := testcluster.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	closed.Close()
	for name, server := range map[string]string{"hangs": "https://" + hangs.Addr().String(), "is down": "https://" + closed.Addr().String()} {
		t.Run(name, func(t *testing.T) {
			h, _ := testhost.ControlPlane(t, nil)
			authorities(t, h)
			ca := testcluster.Must(os.ReadFile(h.Path("/etc/kubernetes/pki/ca.crt")))(t)
			write(t, string(h.Root), node.AdminConf, string(pki.BootstrapKubeconfig(server, ca, "abcdef.0123456789abcdef")))
			f := factsOf(t, string(h.Root))
			if f.Node == nil || f.Node.Role != "control-plane" || !f.Node.Etcd {
				t.Fatalf("%+v, unknown %v", f.Node, f.Unknown)
			}
			for _, name := range []string{"cluster", "cluster.etcdMembers", "node.version"} {
				if f.Unknown[name] == "" {
					t.Errorf("%s is not in unknown: %v", name, f.Unknown)
				}
			}
			if f.Cluster != nil {
				t.Errorf("%+v", f.Cluster)
			}
		})
	}
}

// Pain 7: a damaged ledger is not "no ledger".
func TestFactsWithADamagedLedger(t *testing.T) {
	root := t.TempDir()
	write(t, root, "/var/lib/airlift/ledger.json", "{")
	write(t, root, "/etc/kubernetes/kubelet.conf", "{}")
	if f := factsOf(t, root); f.Unknown["node.airlift"] == "" || f.Unknown["runs"] == "" {
		t.Errorf("unknown: %v", f.Unknown)
	}
}

// Pain 17: a run that was killed is found, and a later run of the same kind ends it.
func TestUnfinishedRun(t *testing.T) {
	const killed = `{"command":"upgrade apply","version":"v1.37.1","began":"2026-11-27T10:00:00Z"}`
	ended := func(command, hour, code string) string {
		return `{"command":"` + command + `","version":"","began":"2026-11-27T` + hour + `:00:00Z","seconds":2,"exitCode":` + code + `}`
	}
	for runs, want := range map[string]string{
		"":     "",
		killed: "upgrade apply",
		killed + "," + ended("etcd snapshot", "11", "0"):                                    "upgrade apply",
		killed + "," + ended("upgrade undo", "11", "0"):                                     "",
		killed + "," + ended("upgrade apply", "11", "3"):                                    "upgrade apply", // refused
		ended("init", "09", "0") + "," + ended("join", "10", "3"):                           "",
		ended("init", "09", "1") + "," + ended("init", "10", "0"):                           "",
		killed + "," + ended("import", "11", "130") + "," + ended("certs renew", "12", "0"): "import",
		ended("reconfigure node", "10", "1") + "," + ended("import", "11", "130"):           "import", // and the reconfiguration, too
		ended("reconfigure node", "10", "1") + "," + ended("reconfigure", "13", "0"):        "",
	} {
		root := t.TempDir()
		write(t, root, "/var/lib/airlift/runs.json", "["+runs+"]")
		f := factsOf(t, root)
		if change := map[bool]string{true: "reconfigure node"}[strings.Contains(runs, `"reconfigure node"`) && !strings.HasSuffix(runs, ended("reconfigure", "13", "0"))]; f.Reconfiguring != change {
			t.Errorf("after [%s]: reconfiguring %q", runs, f.Reconfiguring)
		}
		if f.Unfinished != want || len(f.Runs) != strings.Count(runs, "command") {
			t.Errorf("after [%s]: %q, %+v", runs, f.Unfinished, f.Runs)
		}
	}
}

func TestConnectOnAWorker(t *testing.T) {
	h := testcluster.Must(host.OpenDirectory(t.TempDir()))(t)
	if _, err := Connect(h); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// TestRealFacts reads the cluster of a real API server.
func TestRealFacts(t *testing.T) {
	p := testcluster.Start(t)
	super := testcluster.Must(cluster.Load(p.Super, ""))(t)
	p.Init(t, super.Apply)
	testcluster.Must(super.Apply(t.Context(), testcluster.Must(testcluster.UploadConfig(p.Config))(t)...))(t)
	changed := &config.Config{Cluster: config.Cluster{Reconfiguration: config.Reconfiguration{Number: 3, Workers: 2}}}
	testcluster.Must(super.Apply(t.Context(), testcluster.Must(render.UploadReconfiguration(changed))(t)...))(t)
	p.AddNode(t, "fact1", true)
	p.AddNode(t, "fact2", true)
	testcluster.Must(super.NodeObjects().Follow(t.Context(), "fact2", func(f *cluster.Follows) { f.Reconfiguration = 2 }))(t)
	testcluster.Must(super.NodeObjects().SetMeta(t.Context(), cluster.NodeMeta{Name: "fact1", Labels: map[string]string{"zone": "a"}, Taints: []string{"gpu:NoSchedule"}}, false))(t)
	h, _ := testhost.ControlPlane(t, nil)
	write(t, string(h.Root), node.AdminConf, string(testcluster.Must(os.ReadFile(p.Super))(t)))
	f := factsOf(t, string(h.Root))
	if f.Cluster == nil {
		t.Fatal(f.Unknown)
	}
	i := slices.IndexFunc(f.Cluster.Nodes, func(n facts.ClusterNode) bool { return n.Name == "fact1" })
	if i < 0 || f.Cluster.Version != p.Config.KubernetesVersion {
		t.Fatalf("%+v", f.Cluster)
	}
	n := f.Cluster.Nodes[i]
	if !n.Ready || n.ControlPlane || n.Labels["zone"] != "a" || !slices.Contains(n.Taints, "gpu:NoSchedule") ||
		!slices.Equal(n.ManagedLabels, []string{"zone"}) || !slices.Equal(n.ManagedTaints, []string{"gpu:NoSchedule"}) || !n.ConfigurationBehind {
		t.Errorf("%+v", n)
	}
	if slices.ContainsFunc(f.Cluster.Nodes, func(n facts.ClusterNode) bool { return n.Name == "fact2" && n.ConfigurationBehind }) {
		t.Errorf("fact2 has followed the last change: %+v", f.Cluster.Nodes)
	}
}

func TestMain(m *testing.M) {
	if root := os.Getenv(holdRoot); root != "" {
		holdForParent(root)
	}
	testcluster.Main(m)
}
