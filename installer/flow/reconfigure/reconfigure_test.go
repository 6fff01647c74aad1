package reconfigure

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
	"airlift/installer/revision"
	"airlift/installer/workflow"
	"airlift/scripts/fixtures/testcluster/testclient"
)

// reconfiguring returns a Reconfigure of a host, without a cluster.
func reconfiguring(t *testing.T, o Options) (*Reconfigure, *host.Host) {
	t.Helper()
	h, unlock, err := host.OpenLocked(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(unlock)
	r := New(&payload.Bundle{File: new(bundle.File), Manifest: &bundle.Manifest{KubernetesVersion: "v1.37.1"}}, o, h, &workflow.Console{Out: io.Discard})
	r.Goal.From, r.Goal.Change = "v1.37.1", "0123456789abcdef"
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
	r, h := reconfiguring(t, Options{})
	mounting(r.Config)
	state := func() *revision.Record {
		s, err := revision.Read(h, revision.Reconfigure)
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
		if _, err := r.WriteKept(pki.File{Path: policy, Data: []byte("a"), Mode: 0o600}, pki.File{Path: config.KubeletConfigFile, Data: []byte("b"), Mode: 0o600}); err != nil {
			t.Fatal(err)
		}
	}
	if got := written[policy]; !slices.Equal(got, []string{"kube-apiserver"}) {
		t.Errorf("before the policy is written: %q", got)
	}
	if got := written[config.KubeletConfigFile]; !slices.Equal(got, []string{"kube-apiserver", "kubelet"}) {
		t.Errorf("before the kubelet's configuration is written: %q", got)
	}
	if err := r.Restarted("kube-apiserver"); err != nil {
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
		o := Options{}
		if c.given {
			o.Files = given
		}
		r, h := reconfiguring(t, o)
		if c.now != "" {
			if _, err := h.WriteFile(policy, []byte(c.now), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		r.filesBefore, r.files = given, given
		if got := len(r.writtenFiles()) > 0; got != c.writes {
			t.Errorf("%s: it is written: %t", c.name, got)
		}
	}
}

// TestBehind: a control plane that does not follow the last reconfiguration may not change the next one, also this one itself.
func TestBehind(t *testing.T) {
	last := config.Reconfiguration{Number: 2}
	nodes := []cluster.NodeState{
		{Name: "own", Role: cluster.ControlPlaneRole, Follows: cluster.Follows{Reconfiguration: 1}}, {Name: "undone", Role: cluster.ControlPlaneRole},
		{Name: "follows", Role: cluster.ControlPlaneRole, Follows: cluster.Follows{Reconfiguration: 2}}, {Name: "worker", Role: cluster.WorkerRole},
	}
	if got := cluster.Behind(last, nodes, "own"); !slices.Equal(got, []string{"undone"}) {
		t.Errorf("%q", got)
	}
	r, h := reconfiguring(t, Options{})
	if _, err := h.WriteFile(node.APIServerManifest, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r.Stored = &cluster.Stored{FetchedConfig: &cluster.FetchedConfig{Cluster: config.Cluster{Reconfiguration: last}}}
	if !r.isBehind(1) || r.isBehind(2) {
		t.Error("this control plane is not found")
	}
	r.Resumes = true // the run that it continues was not behind
	if r.isBehind(0) {
		t.Error("an interrupted run cannot be continued")
	}
}

// TestOvertaken: an unfinished run is not continued when the cluster was reconfigured since. reconfigure node ends one that was
// finished before, and what has to restart is not forgotten.
func TestOvertaken(t *testing.T) {
	for _, once := range []bool{true, false} {
		r, _ := reconfiguring(t, Options{Node: true})
		r.Record = &revision.Record{Kind: revision.Reconfigure, From: "v1.37.1", To: "v1.37.1", Change: "0123456789abcdef", Number: 3, WasFinished: once, Pending: []string{"kubelet"}}
		for number, continues := range map[int]bool{2: true, 3: true, 4: false, 5: false} {
			r.Goal.Began = config.Reconfiguration{Number: number}
			if err := r.CheckGoal(); (err == nil) != continues {
				t.Errorf("the cluster has %d: %v", number, err)
			}
		}
		r.Goal.Began = config.Reconfiguration{Number: 5}
		r.EndOvertaken()
		if r.Unfinished() == once {
			t.Errorf("finished once %t: reconfigure node continues it", once)
		}
		if !once {
			continue
		}
		r.Goal.Change = "fedcba9876543210"
		if err := r.Begin(); err != nil {
			t.Fatal(err)
		}
		if s := r.Record; s.Number != 5 || !s.IsPending("kubelet") || s.WasFinished {
			t.Errorf("%+v", s)
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
		r, _ := reconfiguring(t, Options{Node: true, Given: given, Kubeconfig: c.kubeconfig})
		r.API.Client, r.Config.NodeRegistration.Name = client, "one"
		list, err := r.checkTaints(t.Context(), nil)
		if err != nil || (len(list) > 0) != c.refused || c.refused && !strings.Contains(list[0].Fix, "--kubeconfig") {
			t.Errorf("%s, kubeconfig %q: %v, %v", c.registration, c.kubeconfig, list, err)
		}
	}
}

// TestAdoptedKubelet: the kubelet of an adopted node that reads another file keeps its configuration until its first upgrade.
func TestAdoptedKubelet(t *testing.T) {
	for file, reads := range map[string]bool{config.KubeletConfigFile: true, "/etc/kubernetes/kubelet-config.yaml": false} {
		r, h := reconfiguring(t, Options{Node: true})
		if err := h.Records().Adopt(ledger.Adoption{Kubelet: ledger.AdoptedKubelet{Config: file}}); err != nil {
			t.Fatal(err)
		}
		r.parts = []string{revision.KubeletPart}
		report := preflight.NewReport()
		r.checkAdopted(&report)
		if len(report.Errors) > 0 || len(report.Warnings) != map[bool]int{true: 0, false: 1}[reads] {
			t.Errorf("%s: %+v", file, report)
		}
		if reads {
			continue
		}
		if l, err := r.kubeletFiles(t.Context()); err != nil || len(l.Files) > 0 {
			t.Errorf("%s: %+v, %v", file, l.Files, err)
		}
	}
}
