package upgrade

import (
	"cmp"
	"context"
	"path"
	"slices"
	"strings"
	"time"

	"airlift/installer/cluster/facts"
	"airlift/installer/cluster/wait"
	"airlift/installer/cluster/workloads"
	"airlift/installer/host"
	"airlift/installer/phases"
	"airlift/internal/fault"
)

// drain moves pods away from this node before its container runtime and its kubelet restart.
type drain struct {
	node     *phases.Node
	api      *phases.API
	options  Options
	record   *record
	binaries *binaries
}

// movePods moves the pods of this node to other nodes, if its kubelet or its runtime is to be
// replaced.
func (d *drain) movePods(ctx context.Context) error {
	pending, err := d.binaries.pending(all)
	if err != nil {
		return err
	}
	disturbs := slices.ContainsFunc(pending, func(b host.Binary) bool { return ofRuntime(b.Path) || path.Base(b.Path) == "kubelet" })
	switch {
	case !disturbs:
		return nil
	case !d.options.Drain:
		d.node.Console.Note("not drained (--drain=false): the pods keep running")
		return nil
	}
	node := d.node.Config.NodeRegistration.Name
	if nodes, err := facts.UpgradeNodes(ctx, d.api.Client.API); err == nil && !slices.ContainsFunc(nodes, func(n facts.UpgradeNode) bool { return n.Open && n.Name != node }) {
		d.node.Console.Note("not drained: no other node could run this node's pods, which keep running")
		return nil
	}
	self, err := facts.ReadUpgradeNode(ctx, d.api.Client.API, node)
	if err != nil {
		return err
	}
	if err := d.record.begin(); err != nil {
		return err
	}
	if err := waitServices(ctx, d.api, true); err != nil {
		return err
	}
	if !self.Unschedulable {
		d.record.state.Cordoned = true
		if err := d.record.write(); err != nil {
			return err
		}
		if err := d.api.Client.NodeObjects().SetUnschedulable(ctx, node, true); err != nil {
			return err
		}
		d.node.Changed(true)
	}
	eviction := workloads.NewDrain(d.api.Client.API, node, cmp.Or(d.options.DrainTimeout, DrainTimeout))
	eviction.Report = d.node.Report
	eviction.Waiting = func(pod, reason string) { d.node.Console.Note("waiting for %s: %s", pod, reason) }
	evict, bare, err := eviction.Pods(ctx)
	if err != nil {
		return err
	}
	if len(bare) > 0 {
		return fault.New(fault.Failure, "these pods have no controller that would create them again on another node:\n  - %s", strings.Join(bare, "\n  - ")).
			Hint("delete them, or leave all pods running: --drain=false")
	}
	for _, pod := range evict {
		d.node.Console.Note("moving %s", pod)
	}
	return eviction.Run(ctx)
}

// uncordon allows pods on this node again, if this upgrade has forbidden them.
func (d *drain) uncordon(ctx context.Context) error {
	if d.record.state == nil || !d.record.state.Cordoned {
		return nil
	}
	if err := d.api.Client.NodeObjects().SetUnschedulable(ctx, d.node.Config.NodeRegistration.Name, false); err != nil {
		return err
	}
	d.record.state.Cordoned = false
	d.node.Changed(true)
	return d.record.write()
}

// waitServices waits until Services follow their pods: a controller manager acts, and before a drain the
// new kube-proxies are Ready, and each has rules that are up to date. Otherwise requests go to pods that
// the drain has ended. It ends with an error only if ctx ends.
func waitServices(ctx context.Context, a *phases.API, drainIsNext bool) error {
	tell := func(err error) error {
		if err != nil && ctx.Err() == nil {
			a.Console.Warn("%v", err)
			if hint := fault.Hint(err); hint != "" {
				a.Console.Note("%s", hint)
			}
		}
		return ctx.Err()
	}
	err := tell(workloads.WaitForControllerManager(ctx, a.Client.API, controllersTimeout, a.Report))
	if err != nil || !drainIsNext {
		return err
	}
	if err := tell(workloads.WaitForProxies(ctx, a.Client.API, wait.Limit{Timeout: controllersTimeout, Report: a.Report})); err != nil {
		return err
	}
	long := time.AfterFunc(longWait, func() {
		a.Console.Note("waiting for the kube-proxy of all nodes, which need up to two minutes after an API server was away")
	})
	defer long.Stop()
	return tell(workloads.WaitForProxyRules(ctx, a.Client.API, wait.Limit{Timeout: proxyRulesTimeout, Report: a.Report}))
}

// longWait is the time after which a wait is worth a line.
const longWait = 5 * time.Second

// controllersTimeout is longer than a lease lasts, 15 s, and a slow host needs to start the
// controllers.
const controllersTimeout = 90 * time.Second

// proxyRulesTimeout is a little longer than the two pauses of a kube-proxy after an API server was away,
// of up to 60 s each.
const proxyRulesTimeout = 130 * time.Second

// DrainTimeout limits a drain without progress, unless the user chooses another limit. Pods may need their whole grace period.
const DrainTimeout = 10 * time.Minute
