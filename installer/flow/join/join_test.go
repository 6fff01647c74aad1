package join

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"airlift/installer/config"
	"airlift/installer/payload"
	"airlift/installer/phases"
	"airlift/installer/render"
	"airlift/installer/workflow"
)

func TestWorkersHaveNoControlPlanePhases(t *testing.T) {
	worker := workflow.Names(Phases(false))
	for _, p := range []string{"control-plane-prepare", "check-etcd", "etcd-join", "control-plane-join", "wait-control-plane"} {
		if slices.Contains(worker, p) {
			t.Errorf("a worker's join has %s", p)
		}
	}
	for _, p := range []string{"preflight", "discovery", "kubelet-start", "kubelet-wait-bootstrap", "wait-node"} {
		if !slices.Contains(worker, p) {
			t.Errorf("a worker's join lacks %s: %q", p, worker)
		}
	}
}

// TestEtcdIsSkippedUnderEitherName: --skip-phases has the same effect as in
// kubeadm of the bundle's version.
func TestEtcdIsSkippedUnderEitherName(t *testing.T) {
	for _, tt := range []struct {
		version, skip string
		skips         bool
	}{
		{"v1.29.15", "", false},
		{"v1.29.15", "control-plane-join/etcd", true},
		{"v1.29.15", "etcd-join", true},
		{"v1.29.15", "control-plane-join", true},
		{"v1.29.15", "control-plane-join/mark-control-plane", false},
		{"v1.37.1", "etcd-join", true},
		{"v1.37.1", "control-plane-join", false},
	} {
		cfg := &config.Config{ControlPlane: true}
		cfg.KubernetesVersion = tt.version
		if tt.skip != "" {
			cfg.SkipPhases = []string{tt.skip}
		}
		j := newControlPlaneJoin(&phases.Plan{Role: phases.NextControlPlane, Bundle: new(payload.Bundle), Config: cfg}, nil)
		if got := j.etcd.isSkipped(); got != tt.skips {
			t.Errorf("%s, --skip-phases %s: etcd is skipped: %t", tt.version, tt.skip, got)
		}
	}
}

// A run names the members of the cluster's etcd once they are known. A dry run does not know them, and prints that.
func TestStaticPodOfAnEtcdThatJoins(t *testing.T) {
	n, _ := joining(t, "v1.37.1")
	var out bytes.Buffer
	n.Console.Out, n.node.Config.Images = &out, map[string]string{"etcd": "registry.k8s.io/etcd:3.6.6-0"}
	own := render.EtcdMember{Name: "two", PeerURL: "https://10.1.2.4:2380"}
	for _, c := range []struct {
		members  []render.EtcdMember
		pod, say string
	}{
		{nil, "--initial-cluster=two=https://10.1.2.4:2380\n", "--initial-cluster will also contain"},
		{[]render.EtcdMember{{Name: "one", PeerURL: "https://10.1.2.3:2380"}, own}, "--initial-cluster=one=https://10.1.2.3:2380,two=https://10.1.2.4:2380\n", ""},
	} {
		out.Reset()
		n.etcd.members = c.members
		l, err := n.etcd.desired(t.Context())
		if err != nil || len(l.Files) != 1 || !strings.Contains(string(l.Files[0].Data), c.pod) {
			t.Errorf("%v: %s, %v", c.members, l.Files, err)
		}
		if said := out.String(); (said == "") != (c.say == "") || !strings.Contains(said, c.say) {
			t.Errorf("%v: it prints %q", c.members, said)
		}
	}
	n.node.Config.SkipPhases = []string{"etcd-join"}
	if l, err := n.etcd.desired(t.Context()); err != nil || len(l.Files) > 0 {
		t.Errorf("skipped: %v, %v", l, err)
	}
}

func TestSkippedOnAWorker(t *testing.T) {
	cfg := &config.Config{SkipPhases: []string{"control-plane-prepare", "nonsense"}}
	j := New(&phases.Plan{Role: phases.Worker, Bundle: new(payload.Bundle), Config: cfg}, nil, &workflow.Console{Out: new(strings.Builder)})
	err := j.Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), `"nonsense"`) {
		t.Errorf("skipping a phase that only control planes have, and one that nobody has: %v", err)
	}
}
