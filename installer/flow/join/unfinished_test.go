package join

import (
	"io"
	"strings"
	"testing"

	"airlift/fault"
	"airlift/installer/config"
	"airlift/installer/node"
	"airlift/installer/payload"
	"airlift/installer/phases"
	"airlift/installer/workflow"
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
