package upgrade

import (
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"airlift/bundle"
	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/host/ledger"
	"airlift/installer/node"
	"airlift/installer/payload"
	"airlift/installer/pki"
	"airlift/installer/preflight"
	"airlift/installer/reconfiguration"
	"airlift/installer/workflow"
	"airlift/scripts/fixtures/testcluster/testclient"
)

// reconfiguring returns a Reconfigure of a host, without a cluster.
func reconfiguring(t *testing.T, o ReconfigureOptions) (*Reconfigure, *host.Host) {
	t.Helper()
	h, unlock, err := host.OpenLocked(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(unlock)
	r := NewReconfigure(&payload.Bundle{File: new(bundle.File), Manifest: &bundle.Manifest{KubernetesVersion: "v1.37.1"}}, o, h, &workflow.Console{Out: io.Discard})
	r.run.record.from, r.run.record.change = "v1.37.1", "0123456789abcdef"
	return r, h
}

const policy = "/etc/kubernetes/audit/policy.yaml"

// mounting lets the API server read the policy.
func mounting(c *config.Config) {
	c.APIServer.ExtraArgs = []config.Arg{{Name: "audit-policy-file", Value: policy}}
	c.APIServer.ExtraVolumes = []config.HostPathMount{{Name: "audit", HostPath: path.Dir(policy), MountPath: path.Dir(policy)}}
}

// TestPending: a component is recorded before its file is written, and until it is restarted. An interrupted run has it, too.
func TestPending(t *testing.T) {
	r, h := reconfiguring(t, ReconfigureOptions{})
	mounting(r.change.config())
	state := func() *node.UpgradeState {
		s, err := node.ReadReconfigureState(h)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	written := map[string][]string{}
	h.GuardChanges(func(file string, do func() error) error {
		if s := state(); s != nil {
			written[file] = slices.Clone(s.Pending)
		}
		return do()
	})
	for range 2 { // the second time, it writes nothing
		if _, err := r.run.record.writeKept(pki.File{Path: policy, Data: []byte("a"), Mode: 0o600}, pki.File{Path: config.KubeletConfigFile, Data: []byte("b"), Mode: 0o600}); err != nil {
			t.Fatal(err)
		}
	}
	if got := written[policy]; !slices.Equal(got, []string{"kube-apiserver"}) {
		t.Errorf("before the policy is written: %q", got)
	}
	if got := written[config.KubeletConfigFile]; !slices.Equal(got, []string{"kube-apiserver", "kubelet"}) {
		t.Errorf("before the kubelet's configuration is written: %q", got)
	}
	if err := r.run.record.restarted("kube-apiserver"); err != nil {
		t.Fatal(err)
	}
	if s := state(); s.IsPending("kube-apiserver") || !s.IsPending("kubelet") {
		t.Errorf("%q", s.Pending)
	}
}

// TestGivenFiles: a file that the user gives is written, also if the cluster has it already and this host does not.
func TestGivenFiles(t *testing.T) {
	given := []reconfiguration.File{{Path: policy, Data: []byte("a")}}
	for _, c := range []struct {
		name, now     string // on this host
		given, writes bool
	}{
		{"given", "a", true, true}, {"given, and edited", "edited", true, true}, {"not given, and edited", "edited", false, false}, {"not given, and missing", "", false, true},
	} {
		o := ReconfigureOptions{}
		if c.given {
			o.Files = given
		}
		r, h := reconfiguring(t, o)
		if c.now != "" {
			if _, err := h.WriteFile(policy, []byte(c.now), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		r.change.carried.before, r.change.carried.files = given, given
		if got := len(r.change.carried.written()) > 0; got != c.writes {
			t.Errorf("%s: it is written: %t", c.name, got)
		}
	}
}

// TestBehind: a control plane that does not follow the last reconfiguration may not change the next one, also this one itself.
func TestBehind(t *testing.T) {
	last := config.Reconfiguration{Number: 2}
	nodes := []cluster.NodeState{
		{Name: "own", Role: cluster.ControlPlaneRole, Reconfiguration: 1}, {Name: "undone", Role: cluster.ControlPlaneRole},
		{Name: "follows", Role: cluster.ControlPlaneRole, Reconfiguration: 2}, {Name: "worker", Role: cluster.WorkerRole},
	}
	if got := cluster.Behind(last, nodes, "own"); !slices.Equal(got, []string{"undone"}) {
		t.Errorf("%q", got)
	}
	r, h := reconfiguring(t, ReconfigureOptions{})
	if _, err := h.WriteFile(node.APIServerManifest, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r.run.facts.stored = &cluster.Stored{FetchedConfig: &cluster.FetchedConfig{Cluster: config.Cluster{Reconfiguration: last}}}
	if !r.change.isBehind(1) || r.change.isBehind(2) {
		t.Error("this control plane is not found")
	}
	r.run.record.resumes = true // the run that it continues was not behind
	if r.change.isBehind(0) {
		t.Error("an interrupted run cannot be continued")
	}
}

// TestOvertaken: an unfinished run is not continued when the cluster was reconfigured since. reconfigure node ends one that was
// finished before, and what has to restart is not forgotten.
func TestOvertaken(t *testing.T) {
	for _, once := range []bool{true, false} {
		r, _ := reconfiguring(t, ReconfigureOptions{Node: true})
		r.run.record.state = &node.UpgradeState{From: "v1.37.1", To: "v1.37.1", Change: "0123456789abcdef", Number: 3, WasFinished: once, Pending: []string{"kubelet"}}
		for number, continues := range map[int]bool{2: true, 3: true, 4: false, 5: false} {
			r.run.record.last = config.Reconfiguration{Number: number}
			if err := r.run.record.checkGoal(); (err == nil) != continues {
				t.Errorf("the cluster has %d: %v", number, err)
			}
		}
		r.run.record.last = config.Reconfiguration{Number: 5}
		r.run.record.endOvertaken()
		if r.run.record.unfinished() == once {
			t.Errorf("finished once %t: reconfigure node continues it", once)
		}
		if !once {
			continue
		}
		r.run.record.change = "fedcba9876543210"
		if err := r.run.record.begin(); err != nil {
			t.Fatal(err)
		}
		if s := r.run.record.state; s.Number != 5 || !s.IsPending("kubelet") || s.WasFinished {
			t.Errorf("%+v", s)
		}
	}
}

// TestEndReconfiguration: after an upgrade with another file, also of the same version, undo of a reconfiguration would restore
// manifests of the former one.
func TestEndReconfiguration(t *testing.T) {
	for name, c := range map[string]struct {
		to, bundle string
		stays      bool
	}{
		"the same file": {"v1.37.1", "", true}, "another file": {"v1.37.1", "another", false}, "another version": {"v1.36.3", "", false},
	} {
		r, h := reconfiguring(t, ReconfigureOptions{})
		s := &node.UpgradeState{From: c.to, To: c.to, Bundle: c.bundle + r.run.record.bundle.ID(), Change: "0123456789abcdef", Finished: true}
		if err := s.Write(h); err != nil {
			t.Fatal(err)
		}
		r.run.record.reconfigures = false
		if err := r.run.record.finish(); err != nil {
			t.Fatal(err)
		}
		if left, err := node.ReadReconfigureState(h); err != nil || (left != nil) != c.stays {
			t.Errorf("%s: %+v, %v", name, left, err)
		}
	}
}

// TestTaintsOfAWorker: a change that the kubelet may not make is refused before the first change.
func TestTaintsOfAWorker(t *testing.T) {
	client, _ := testclient.Fake(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "one"}})
	for _, c := range []struct {
		registration, kubeconfig string
		refused                  bool
	}{
		{"taints: [{key: gpu, value: a, effect: NoSchedule}]", "", true},
		{"taints: [{key: gpu, value: a, effect: NoSchedule}]", "/admin.conf", false},
		{"taints: []", "", false},
		{"kubeletExtraArgs: [{name: node-labels, value: rack=a}]", "", false},
	} {
		file := filepath.Join(t.TempDir(), "kubeadm.yaml")
		if err := os.WriteFile(file, []byte("apiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration\nnodeRegistration:\n  "+c.registration+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		given, _, err := config.ReadReconfigureNode(file)
		if err != nil {
			t.Fatal(err)
		}
		r, _ := reconfiguring(t, ReconfigureOptions{Node: true, Given: given, Kubeconfig: c.kubeconfig})
		r.run.facts.api.Client, r.change.config().NodeRegistration.Name = client, "one"
		list, err := marks{r.change}.check(t.Context(), nil)
		if err != nil || (len(list) > 0) != c.refused || c.refused && !strings.Contains(list[0].Fix, "--kubeconfig") {
			t.Errorf("%s, kubeconfig %q: %v, %v", c.registration, c.kubeconfig, list, err)
		}
	}
}

// TestAdoptedKubelet: the kubelet of an adopted node that reads another file keeps its configuration until its first upgrade.
func TestAdoptedKubelet(t *testing.T) {
	for file, reads := range map[string]bool{config.KubeletConfigFile: true, "/etc/kubernetes/kubelet-config.yaml": false} {
		r, h := reconfiguring(t, ReconfigureOptions{Node: true})
		if err := h.Records().Adopt(ledger.Adoption{Kubelet: ledger.AdoptedKubelet{Config: file}}); err != nil {
			t.Fatal(err)
		}
		r.change.parts = []string{kubeletPart}
		report := preflight.NewReport()
		r.change.checkAdopted(&report)
		if len(report.Errors) > 0 || len(report.Warnings) != map[bool]int{true: 0, false: 1}[reads] {
			t.Errorf("%s: %+v", file, report)
		}
		if reads {
			continue
		}
		if l, err := r.change.kubeletFiles(t.Context()); err != nil || len(l.Files) > 0 {
			t.Errorf("%s: %+v, %v", file, l.Files, err)
		}
	}
}
