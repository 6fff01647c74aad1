package upgrade

import (
	"strings"
	"testing"

	"airlift/installer/cluster/inventory"
	"airlift/installer/config"
	"airlift/installer/preflight"
	"airlift/installer/revision"
)

func TestPlanText(t *testing.T) {
	p := &Plan{
		From: "v1.37.1", To: "v1.37.2", Node: "cp",
		Nodes: []PlannedNode{{inventory.Node{Name: "cp", ControlPlane: true, Ready: true, KubeletVersion: "v1.37.1"}, "v1.37.2"}, {inventory.Node{Name: "w", KubeletVersion: "v1.37.2"}, "v1.37.2"}},
		Components: []PlannedComponent{
			{inventory.Component{Name: "etcd", Node: "cp"}, "3.7.0-0", ""},
			{inventory.Component{Name: "kube-apiserver", Node: "cp"}, "v1.37.1", "v1.37.2"},
		},
		Changes:  []revision.Difference{{Name: "/etc/x.yaml", Diff: "--- a\n+++ b\n"}, {Name: "/usr/local/bin/kubelet"}},
		Warnings: []preflight.Problem{{Name: "NodesReady", Message: "node w is not Ready"}},
	}
	text := func(diffs bool) string {
		var out strings.Builder
		p.Write(&out, diffs)
		return out.String()
	}
	for _, want := range []string{"cp     control plane   true    v1.37.1   v1.37.2", "w      worker          false   v1.37.2   stays", "etcd             cp     3.7.0-0   stays", "    /usr/local/bin/kubelet\n", "[WARNING NodesReady]: node w", "./install upgrade apply"} {
		if !strings.Contains(text(false), want) {
			t.Errorf("%q is not in\n%s", want, text(false))
		}
	}
	if strings.Contains(text(false), "+++ b") || !strings.Contains(text(true), "+++ b") {
		t.Errorf("differences:\n%s", text(true))
	}
	p.Errors = []preflight.Problem{{Name: "EtcdHealth", Message: "no"}}
	if strings.Contains(text(false), "upgrade apply") {
		t.Errorf("with errors:\n%s", text(false))
	}
}

func TestPlanRepeatsItsFlags(t *testing.T) {
	for want, o := range map[string]PlanOptions{
		"upgrade apply\n":                      {UpgradePlan: config.UpgradePlan{EtcdUpgrade: true}, Drain: true},
		"upgrade apply --etcd-upgrade=false\n": {Drain: true},
		"upgrade node --drain=false --patches /etc/site --ignore-preflight-errors=NodesReady,Drain\n": {
			UpgradePlan: config.UpgradePlan{EtcdUpgrade: true, IgnorePreflightErrors: []string{"NodesReady", "Drain"}}, Patches: "/etc/site"},
	} {
		var out strings.Builder
		(&Plan{flags: o.flags()}).Write(&out, false)
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
}
