package adopt

import (
	"context"
	"fmt"
	"strings"

	"airlift/installer/endpoint"
	"airlift/installer/host"
	"airlift/installer/host/uninstall"
	"airlift/installer/node"
	"airlift/installer/phases"
	"airlift/installer/registry/hosts"
	"airlift/installer/revision"
	"airlift/installer/workflow"
	"airlift/internal/fault"
)

// CheckDisown refuses to leave a node that needs Airlift. A host without a ledger has nothing to end.
func CheckDisown(h *host.Host) error {
	if !h.Records().Manages() {
		return nil
	}
	if h.Records().Adopted() == nil {
		return fault.New(fault.Preflight, "Airlift installed this node, and did not adopt it: without its ledger, no command could remove it").Hint("to remove the node: ./install reset")
	}
	if err := node.UnfinishedRestore(h); err != nil {
		return err
	}
	if err := node.RotationInProgress(h, node.Observe(h).PKI()); err != nil {
		return err
	}
	if err := revision.UnfinishedRevision(h); err != nil {
		return err
	}
	switch {
	case node.FileExists(h, endpoint.SettingsPath):
		return fault.New(fault.Preflight, "Airlift's endpoint serves this node").Hint("change the endpoint of the cluster first: ./install endpoint undo; then on each node: ./install endpoint node")
	case phases.ServesRegistry(h) || node.FileExists(h, hosts.Timer.UnitPath()):
		return fault.New(fault.Preflight, "this node uses the embedded registry of its cluster").Hint("on a control plane: ./install registry disable")
	}
	return nil
}

// DescribeDisown returns the text that lists what goes and what stays.
func DescribeDisown(h *host.Host) (string, error) {
	goes, stays, err := uninstall.PlanDisown(h)
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

// Disown ends the adoption of the node on this host. What runs stays. It is safe to run it again: it finishes what an interrupted
// run left.
func Disown(ctx context.Context, h *host.Host, c *workflow.Console) error {
	h.Warn = c.Warn
	c.Summary("Airlift no longer manages this node. What runs was not changed.\n")
	return workflow.Run(ctx, c, []workflow.Step{
		{Name: "preflight", Doc: "check that the node does not need Airlift", Run: func(context.Context) error { return CheckDisown(h) }, Reads: true},
		{Name: "timers", Doc: "remove Airlift's timers, and the command airlift", Run: func(ctx context.Context) error { return uninstall.RemoveServices(ctx, h) }},
		{Name: "ledger", Doc: "remove the ledger, and the files that reset and undo would restore", Run: func(context.Context) error { return uninstall.RemoveLedger(h) }},
	}, nil)
}
