package upgrade

import (
	"strings"
	"testing"

	"airlift/installer/cluster/facts"
	"airlift/installer/config"
	"airlift/installer/preflight"
	"airlift/installer/reconfiguration"
	"airlift/scripts/fixtures/secrets"
	"airlift/scripts/fixtures/seed"
)

func TestPlanText(t *testing.T) {
	p := &Plan{
		From: "v1.37.1", To: "v1.37.2", Node: "cp",
		Nodes: []PlannedNode{{facts.Node{Name: "cp", ControlPlane: true, Ready: true, Kubelet: "v1.37.1"}, "v1.37.2"}, {facts.Node{Name: "w", Kubelet: "v1.37.2"}, "v1.37.2"}},
		Components: []PlannedComponent{
			{facts.Component{Name: "etcd", Node: "cp"}, "3.7.0-0", ""},
			{facts.Component{Name: "kube-apiserver", Node: "cp"}, "v1.37.1", "v1.37.2"},
		},
		Changes:  []PlannedChange{{"/etc/x.yaml", "--- a\n+++ b\n"}, {"/usr/local/bin/kubelet", ""}},
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

// A refusal names values of the user's documents and of files that were edited: none of them shows a secret.
func TestRefusalsHaveNoSecrets(t *testing.T) {
	g := secrets.New(seed.Value(t))
	for _, p := range g.Probes() {
		if p.Source != secrets.Message {
			continue
		}
		secret := strings.ReplaceAll(g.Secret(), "\n", " ")
		shown := func(secret string) string {
			return withoutSecrets([]reconfiguration.Refusal{{Field: "f", From: p.Text(secret), To: p.Text(secret)}})[0].String()
		}
		if piece := secrets.Leak(shown(secret), shown("Zq9xW1kLp0"), secret); piece != "" {
			t.Errorf("%s: %q is left in %s", p.Name, piece, shown(secret))
		}
	}
	r := reconfiguration.Refusal{Field: "networking.podSubnet", From: "10.244.0.0/16", To: "10.245.0.0/16"}
	if got := withoutSecrets([]reconfiguration.Refusal{r}); got[0] != r {
		t.Errorf("%+v", got)
	}
}
