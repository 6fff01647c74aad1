package upgrade

import (
	"cmp"
	"context"
	"path"
	"slices"
	"strings"

	"airlift/installer/cluster/inventory"
	"airlift/installer/cluster/workloads"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/revision"
	"airlift/internal/fault"
)

// movePods moves the pods of this node to other nodes, if its kubelet or its runtime is to be
// replaced.
func (u *Upgrade) movePods(ctx context.Context) error {
	pending, err := u.pending(all)
	if err != nil {
		return err
	}
	disturbs := slices.ContainsFunc(pending, func(b host.Binary) bool { return ofRuntime(b.Path) || path.Base(b.Path) == "kubelet" })
	switch {
	case !disturbs:
		return nil
	case !u.Options.Drain:
		u.Console.Note("not drained (--drain=false): the pods keep running")
		return nil
	}
	node := u.Config.NodeRegistration.Name
	if nodes, err := inventory.Nodes(ctx, u.API.Client.API); err == nil && !slices.ContainsFunc(nodes, func(n inventory.Node) bool { return n.Open && n.Name != node }) {
		u.Console.Note("not drained: no other node could run this node's pods, which keep running")
		return nil
	}
	self, err := inventory.ReadNode(ctx, u.API.Client.API, node)
	if err != nil {
		return err
	}
	if err := u.Begin(); err != nil {
		return err
	}
	if err := revision.WaitServices(ctx, u.API, true); err != nil {
		return err
	}
	if !self.Unschedulable {
		u.Record.Cordoned = true
		if err := u.WriteRecord(); err != nil {
			return err
		}
		if err := u.API.Client.NodeObjects().SetUnschedulable(ctx, node, true); err != nil {
			return err
		}
		u.Changed(true)
	}
	eviction := workloads.NewDrain(u.API.Client.API, node, cmp.Or(u.options.DrainTimeout, config.DrainTimeout))
	eviction.Report = u.Report
	eviction.Waiting = func(pod, reason string) { u.Console.Note("waiting for %s: %s", pod, reason) }
	evict, bare, err := eviction.Pods(ctx)
	if err != nil {
		return err
	}
	if len(bare) > 0 {
		return fault.New(fault.Failure, "these pods have no controller that would create them again on another node:\n  - %s", strings.Join(bare, "\n  - ")).
			Hint("delete them, or leave all pods running: --drain=false")
	}
	for _, pod := range evict {
		u.Console.Note("moving %s", pod)
	}
	return eviction.Run(ctx)
}

// uncordon allows pods on this node again, if this upgrade has forbidden them.
func (u *Upgrade) uncordon(ctx context.Context) error {
	if u.Record == nil || !u.Record.Cordoned {
		return nil
	}
	if err := u.API.Client.NodeObjects().SetUnschedulable(ctx, u.Config.NodeRegistration.Name, false); err != nil {
		return err
	}
	u.Record.Cordoned = false
	u.Changed(true)
	return u.WriteRecord()
}
