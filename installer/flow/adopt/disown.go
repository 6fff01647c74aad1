package adopt

import (
	"context"
	"fmt"
	"strings"

	"airlift/fault"
	"airlift/installer/endpoint"
	"airlift/installer/host"
	"airlift/installer/host/uninstall"
	"airlift/installer/node"
	"airlift/installer/phases"
	"airlift/installer/registry/hosts"
	"airlift/installer/status"
	"airlift/installer/workflow"
)

// A Disown ends the adoption of the node on this host. What runs stays.
type Disown struct {
	*node.Machine
}

// NewDisown returns a Disown of this host.
func NewDisown(h *host.Host, c *workflow.Console) *Disown { return &Disown{node.NewMachine(h, c)} }

// Nothing reports whether Airlift has no ledger of this host, so that there is nothing to end.
func (d *Disown) Nothing() bool { return !d.Existing.Records().Used() }

// Check refuses to leave a node that needs Airlift. It changes nothing.
func (d *Disown) Check() error {
	h := d.Existing
	if d.Nothing() {
		return nil
	}
	if h.Records().Adopted() == nil {
		return fault.New(fault.Preflight, "Airlift installed this node, and did not adopt it: without its ledger, no command could remove it").Hint("to remove the node: ./install reset")
	}
	if err := node.UnfinishedRestore(h); err != nil {
		return err
	}
	if err := node.RotationInProgress(h, status.PKIConfig(h)); err != nil {
		return err
	}
	if err := node.UnfinishedReconfigure(h); err != nil {
		return err
	}
	upgrade, err := node.ReadUpgradeState(h)
	switch {
	case err != nil:
		return err
	case upgrade != nil && !upgrade.Finished:
		return fault.New(fault.Preflight, "an upgrade of this node to %s was not finished", upgrade.To).Hint("finish it with that file, or undo it: ./install upgrade undo")
	case d.Exists(endpoint.SettingsPath):
		return fault.New(fault.Preflight, "Airlift's endpoint serves this node").Hint("change the endpoint of the cluster first: ./install endpoint undo; then on each node: ./install endpoint node")
	case phases.ServesRegistry(h) || d.Exists(hosts.Timer.UnitPath()):
		return fault.New(fault.Preflight, "this node uses the embedded registry of its cluster").Hint("on a control plane: ./install registry disable")
	}
	return nil
}

// Describe returns the text that lists what goes and what stays.
func (d *Disown) Describe() (string, error) {
	goes, stays, err := uninstall.PlanDisown(d.Existing)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, part := range []struct {
		heading string
		items   []string
	}{{"Removed:", goes}, {"Left as it is; no command restores what was there before:", stays}} {
		if len(part.items) > 0 {
			fmt.Fprintf(&b, "%s\n\n    %s\n\n", part.heading, strings.Join(part.items, "\n    "))
		}
	}
	return b.String(), nil
}

// Steps returns the steps in order.
func (d *Disown) Steps() []workflow.Step {
	return []workflow.Step{
		{Name: "preflight", Doc: "check that the node does not need Airlift", Run: func(context.Context) error { return d.Check() }, Reads: true},
		{Name: "timers", Doc: "remove Airlift's timers, and its copy of the installer", Run: func(ctx context.Context) error { return uninstall.RemoveServices(ctx, d.Host) }},
		{Name: "ledger", Doc: "remove the ledger, and the files that reset and undo would restore", Run: func(context.Context) error { return uninstall.RemoveLedger(d.Host) }},
	}
}

// Run ends the adoption. It is safe to run it again: it finishes what an interrupted run left.
func (d *Disown) Run(ctx context.Context) error {
	d.Console.Summary("Airlift no longer manages this node. What runs was not changed.\n")
	return workflow.Run(ctx, d.Console, d.Steps(), nil)
}
