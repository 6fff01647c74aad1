package phases

import (
	corev1 "k8s.io/api/core/v1"

	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"airlift/installer/config"
	"airlift/installer/host/ledger"
	"airlift/installer/node"
	"airlift/installer/payload"
	"airlift/installer/render"
	"airlift/installer/workflow"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/layouts"
	"airlift/scripts/fixtures/testhost"
)

// controlPlane returns the node of a control plane that init created, with its static pods.
func controlPlane(t *testing.T, change func(*config.Config)) *Node {
	t.Helper()
	h, cfg := testhost.ControlPlane(t, change)
	return NewNode(&Plan{Role: FirstControlPlane, Bundle: new(payload.Bundle), Config: cfg}, node.NewMachine(h, &workflow.Console{Out: new(bytes.Buffer)}))
}

// init and join do not continue on a node of another tool that only has packages of Airlift.
func TestPackagesAreNoEarlierRun(t *testing.T) {
	root := t.TempDir()
	if err := layouts.Kubeadm(layouts.Options{Version: "v1.36.3"}).WriteInside(root); err != nil {
		t.Fatal(err)
	}
	h := testhost.Open(t, root)
	if err := h.Records().Record(ledger.Entry{Kind: ledger.Package, Name: "chrony", Package: &ledger.PackageVersions{Manager: "dpkg", Version: "4"}}); err != nil {
		t.Fatal(err)
	}
	n := NewNode(&Plan{Role: FirstControlPlane, Bundle: new(payload.Bundle), Config: testhost.Config(nil)}, node.NewMachine(h, &workflow.Console{Out: new(bytes.Buffer)}))
	if is, err := n.findEarlierRun(); is || err != nil {
		t.Errorf("%v, %v", is, err)
	}
}

// A second init without the file of the first one would replace etcd by an empty one. The API
// server may be down: nothing answers here.
func TestOtherEtcdIsRefused(t *testing.T) {
	external := func(c *config.Config) {
		c.Etcd.External = &config.ExternalEtcd{Endpoints: []string{"https://10.9.9.9:2379"}}
	}
	inData := func(c *config.Config) { c.Etcd.Local.DataDir = "/data/etcd" }
	same := func(*config.Config) {}
	for _, tt := range []struct {
		name        string
		first, then func(*config.Config)
		data        string // the directory that has etcd's data
		want        string
	}{
		{"the same", inData, inData, "/data/etcd", ""},
		{"the same with a slash", inData, func(c *config.Config) { c.Etcd.Local.DataDir = "/data/etcd/" }, "/data/etcd", ""},
		{"another directory", inData, same, "/data/etcd", "etcd is local, with its data in /data/etcd, and the requested value is local, with its data in /var/lib/etcd"},
		{"an external etcd", same, external, "/var/lib/etcd", "etcd is local, with its data in /var/lib/etcd, and the requested value is external"},
		{"another directory, before the first start", inData, same, "", ""},
	} {
		n := controlPlane(t, tt.first)
		if tt.data != "" {
			if err := os.MkdirAll(n.Host.Path(filepath.Join(tt.data, "member")), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		later := *n.Config
		later.Etcd = config.Etcd{Local: config.LocalEtcd{DataDir: config.EtcdDataDir}}
		tt.then(&later)
		n.Config, n.Observed.IsNode = &later, true
		err := n.CheckRunning(t.Context(), false)
		if (err == nil) != (tt.want == "") || err != nil && (fault.ExitCode(err) != fault.Preflight || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}

func TestDifferencesAreNamed(t *testing.T) {
	is := config.Cluster{KubernetesVersion: "v1.29.15", Networking: config.Networking{PodSubnet: config.ParseCIDRs("10.244.0.0/16"), DNSDomain: "cluster.local"}}
	if diff := differences(is, is); diff != nil {
		t.Errorf("a cluster differs from itself: %q", diff)
	}
	want := is
	want.KubernetesVersion, want.Networking.PodSubnet, want.ControlPlaneEndpoint = "v1.30.1", config.ParseCIDRs("10.60.0.0/16"), "vip:6443"
	want.CertificatesDir, want.Etcd.External = "/data/pki", &config.ExternalEtcd{Endpoints: []string{"https://10.9.9.9:2379"}}
	got := strings.Join(differences(is, want), "\n")
	for _, w := range []string{"v1.29.15, and the requested value is v1.30.1", "10.244.0.0/16, and the requested value is 10.60.0.0/16", "--control-plane-endpoint is not set, and the requested value is vip:6443",
		"--cert-dir is /etc/kubernetes/pki, and the requested value is /data/pki", "etcd is local, with its data in /var/lib/etcd, and the requested value is external"} {
		if !strings.Contains(got, w) {
			t.Errorf("%q is not in:\n%s", w, got)
		}
	}
}

func TestMissingSettings(t *testing.T) {
	is := config.Cluster{Etcd: config.Etcd{Local: config.LocalEtcd{ExtraArgs: []config.Arg{{Name: "quota-backend-bytes", Value: "1"}}}}}
	is.APIServer.ExtraArgs = []config.Arg{{Name: "encryption-provider-config", Value: "/etc/site/keys.yaml"}, {Name: "v", Value: "2"}}
	is.APIServer.ExtraVolumes = []config.HostPathMount{{Name: "site"}}
	is.Scheduler.ExtraEnvs = []corev1.EnvVar{{Name: "TZ"}}
	want := new(config.Config)
	want.KubernetesVersion = "v1.37.1"
	want.APIServer.ExtraArgs = []config.Arg{{Name: "v", Value: "4"}, {Name: "profiling", Value: "false"}}
	got := strings.Join(missingSettings(is, want), "\n")
	if list := "apiServer.extraArgs: encryption-provider-config\napiServer.extraVolumes: site\nscheduler.extraEnvs: TZ\netcd.local.extraArgs: quota-backend-bytes"; got != list {
		t.Errorf("%s", got)
	}
	if lost := missingSettings(is, &config.Config{Cluster: is}); lost != nil {
		t.Errorf("%q", lost)
	}
}

// kubeadm v1.29 stores a flag that nobody gave.
func TestStoredDefaultsAreNotMissing(t *testing.T) {
	for _, version := range []string{"v1.29.15", "v1.37.1"} {
		c := new(config.Config)
		c.KubernetesVersion = version
		if lost := missingSettings(render.StoredCluster(c), c); lost != nil {
			t.Errorf("%s: %q", version, lost)
		}
		if stored := render.StoredCluster(c).APIServer.ExtraArgs; (version == "v1.29.15") != (len(stored) == 1) {
			t.Errorf("%s: %v", version, stored)
		}
	}
}
