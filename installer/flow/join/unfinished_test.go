package join

import (
	"errors"
	"io"
	"strings"
	"testing"

	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/host/ledger"
	"airlift/installer/node"
	"airlift/installer/payload"
	"airlift/installer/phases"
	"airlift/installer/workflow"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/testhost"
)

// TestUnfinishedRestoreRefusesJoin: join would continue with a part of the backup of another cluster.
func TestUnfinishedRestoreRefusesJoin(t *testing.T) {
	h := testhost.Open(t, t.TempDir())
	if err := node.WriteRecord(h, node.RestoreMarkPath, node.RestoreMark{File: "/mnt/usb/cluster.tar"}); err != nil {
		t.Fatal(err)
	}
	for _, controlPlane := range []bool{false, true} {
		cfg := testhost.Config(func(c *config.Config) { c.ControlPlane = controlPlane })
		join := newJoin(&phases.Plan{Role: phases.JoiningRole(cfg), Bundle: new(payload.Bundle), Config: cfg}, node.NewMachine(h, &workflow.Console{Out: io.Discard}))
		for name, err := range map[string]error{
			"join":       join.node.Inspect(t.Context()),
			"join phase": join.RunPhase(t.Context(), "kubelet-start"),
		} {
			if err == nil || fault.ExitCode(err) != fault.Preflight || !strings.Contains(err.Error(), "a restore on this host is not finished") ||
				!strings.Contains(fault.Hint(err), "./install etcd restore /mnt/usb/cluster.tar") || !strings.Contains(fault.Hint(err), "./install reset") {
				t.Errorf("%s, control plane %t: %v (hint %q)", name, controlPlane, err, fault.Hint(err))
			}
		}
	}
}

// TestUnfinishedResetRefusesJoin: the kubelet.conf that an interrupted reset left has no certificate. Every
// other combination is a new host, a node, or a node of which reset has removed nothing.
func TestUnfinishedResetRefusesJoin(t *testing.T) {
	for state := range 8 {
		begun, kubeconfig, configuration := state&1 != 0, state&2 != 0, state&4 != 0
		h, err := host.OpenDirectory(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		if begun {
			err = h.Records().BeginReset(ledger.Identity{})
		}
		for name, is := range map[string]bool{node.KubeletConf: kubeconfig, config.KubeletConfigFile: configuration} {
			if is {
				_, more := h.WriteFile(name, []byte("{}"), 0o600)
				err = errors.Join(err, more)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		cfg := testhost.Config(nil)
		join := newJoin(&phases.Plan{Role: phases.JoiningRole(cfg), Bundle: new(payload.Bundle), Config: cfg}, node.NewMachine(h, &workflow.Console{Out: io.Discard}))
		err = join.node.Inspect(t.Context())
		if refused := err != nil && strings.Contains(fault.Hint(err), "finish it: ./install reset"); refused != (begun && kubeconfig && !configuration) {
			t.Errorf("reset has begun %t, kubelet.conf %t, configuration %t: %v", begun, kubeconfig, configuration, err)
		}
	}
}
