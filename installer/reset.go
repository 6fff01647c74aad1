package installer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"airlift/fault"
	"airlift/images/store"
	"airlift/installer/config"
	"airlift/installer/host"
)

// Reset lists the steps that remove what init or join created. The first two run
// before anything on the host is changed, and end the reset when they fail. Each
// later one goes on past what it cannot remove, and reports it at its end.
func (n *Node) Reset() []Step {
	return []Step{
		{Name: "preflight", Doc: "look at what is installed here", Run: n.resetPreflight},
		{Name: "remove-etcd-member", Doc: "take this host's etcd out of the cluster", Run: n.removeEtcdMember},
		{Name: "stop-kubelet", Doc: "stop the kubelet", Run: n.Host.StopKubelet},
		{Name: "remove-pods", Doc: "stop and remove all pods", Run: n.removePods},
		{Name: "cleanup-node", Doc: "remove what was installed and made", Steps: []Step{
			{Name: "images", Doc: "restore the image names in an existing containerd", Run: n.restoreImages},
			{Name: "runtime", Doc: "stop containerd", Run: n.Host.StopRuntime},
			{Name: "mounts", Doc: "unmount volumes", Run: n.unmount},
			{Name: "interfaces", Doc: "remove the pod network's interfaces", Run: n.Host.RemoveInterfaces},
			{Name: "netfilter", Doc: "remove packet filter rules", Run: n.removeNetfilter},
			{Name: "routes", Doc: "remove routes", Run: n.Host.RemoveRoutes},
			{Name: "state", Doc: "remove what programs stored: etcd's data, the kubelet's state, containerd's", Run: n.Host.RemoveState},
			{Name: "installed", Doc: "remove units, certificates, configuration and binaries", Run: n.removeInstalled},
		}},
	}
}

// PlanReset finds out what reset would do and returns it. An empty plan means
// that nothing was installed here. A host that is a node and has no ledger is
// refused, unless the user asked for that.
func (n *Node) PlanReset() (host.Plan, error) {
	recorded := n.Host.Used()
	if !recorded && !n.Host.IsNode() {
		return nil, nil
	}
	if !recorded {
		traces := host.Traces{CertificatesDir: cmp.Or(n.Resetting.CertificatesDir, config.CertificatesDir)}
		_, volumes, err := n.staticPod("etcd")
		if err != nil {
			return nil, err
		}
		traces.EtcdDataDir = volumes["etcd-data"]
		n.Host.AdoptTraces(traces)
	}
	if n.Resetting.CleanupTmpDir {
		n.Host.Adopt(config.KubernetesDir + "/tmp")
	}
	var err error
	if n.plan, err = n.Host.Plan(); err != nil {
		return nil, err
	}
	if !recorded && !n.Resetting.WithoutLedger {
		return nil, fault.New(fault.Preflight,
			"to remove just that: ./install reset --without-ledger, which shows the list again and asks; or use what made this node, such as kubeadm reset",
			"this host is a node that Airlift has no ledger of: another program made it, or the ledger is lost; what would go:\n%s", listed(n.plan.Of(host.Remove, host.Empty)))
	}
	return n.plan, nil
}

// listed shows a plan's items one on a line.
func listed(plan host.Plan) string {
	var b strings.Builder
	for _, i := range plan {
		b.WriteString("    " + i.String() + "\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// DescribePlan shows what goes and what stays.
func DescribePlan(plan host.Plan) string {
	var b strings.Builder
	for _, part := range []struct {
		heading string
		items   host.Plan
	}{
		{"Removed:", plan.Of(host.Remove)}, {"Emptied:", plan.Of(host.Empty)},
		{"Edited since, kept under another name:", plan.Of(host.Save)}, {"Left:", plan.Of(host.Leave)},
	} {
		if len(part.items) > 0 {
			fmt.Fprintf(&b, "\n%s\n\n%s\n", part.heading, listed(part.items))
		}
	}
	return b.String()
}

// nothingInstalled is said of a host without a ledger and without a node.
const nothingInstalled = "Airlift installed nothing on this host: nothing was changed.\n"

// resetPreflight refuses what would end a cluster that others are in.
func (n *Node) resetPreflight(ctx context.Context) error {
	if n.Resetting.Force || slices.Contains(n.Resetting.SkipPhases, "remove-etcd-member") {
		return nil
	}
	return n.checkEtcdReset(ctx)
}

// removePods asks the runtime to stop all pods, then kills what remains.
func (n *Node) removePods(ctx context.Context) error {
	if n.Host.RanNode() && n.exists(n.resetSocket()) {
		if err := n.removePodsThroughCRI(ctx); err != nil {
			n.Console.Warn("%s; killing what is left", err)
		}
	}
	return n.Host.KillPods(ctx)
}

// resetSocket is the path of the container runtime's socket.
func (n *Node) resetSocket() string {
	return strings.TrimPrefix(cmp.Or(n.Resetting.CRISocket, config.ContainerdSocket), "unix://")
}

func (n *Node) removePodsThroughCRI(ctx context.Context) error {
	s, err := store.Connect(ctx, n.resetSocket())
	if err != nil {
		return err
	}
	defer s.Close()
	return s.RemovePods(ctx)
}

func (n *Node) unmount(ctx context.Context) error {
	return n.Host.Unmount(ctx, n.Resetting.UnmountFlags...)
}

func (n *Node) removeNetfilter(ctx context.Context) error {
	warnings, err := n.Host.RemoveNetfilter(ctx)
	for _, w := range warnings {
		n.Console.Warn("%s", w)
	}
	return err
}

// removeInstalled leaves it to the closing words to list what is kept.
func (n *Node) removeInstalled(ctx context.Context) error {
	_, err := n.Host.RemoveInstalled(ctx)
	return err
}

// RunReset resets the host, as PlanReset found.
func (n *Node) RunReset(ctx context.Context) error {
	if n.plan == nil {
		n.Console.Summary(nothingInstalled)
		n.Console.close()
		return nil
	}
	name := n.nodeName()
	if err := n.Host.Commit(); err != nil {
		return err
	}
	if err := runReset(ctx, n.Console, n.Reset(), n.Resetting.SkipPhases); err != nil {
		return err
	}
	n.Console.Summary(n.closingWords(name))
	n.Console.close()
	return nil
}

// closingWords lists what reset has left.
func (n *Node) closingWords(name string) string {
	var b strings.Builder
	left := n.Host.Left(n.plan)
	switch {
	case n.Host.Used():
		b.WriteString("Phases were skipped: what they would have removed is still listed in " + host.LedgerPath + ". Run reset again to remove it.\n")
	case len(left) == 0 && len(n.leftImages) == 0:
		b.WriteString("This host is as it was before.\n")
	case n.Resetting.WithoutLedger:
		b.WriteString("What was listed is removed. These are left:\n\n")
	default:
		b.WriteString("Everything that Airlift created here is removed. These are left:\n\n")
	}
	for _, i := range left {
		fmt.Fprintf(&b, "    left: %s\n", i)
	}
	for _, image := range n.leftImages {
		fmt.Fprintf(&b, "    left: %s\n", image)
	}
	if name != "" && !n.lastControlPlane {
		fmt.Fprintf(&b, "\nThe cluster still has the Node object. Remove it there: kubectl delete node %s\n", name)
	}
	return b.String()
}

// beforeChanges are reset's steps that end it when they fail: nothing on the
// host has been changed then.
var beforeChanges = []string{"preflight", "remove-etcd-member"}

// runReset runs reset's steps. Unlike init and join it goes on after a step
// that failed, because what comes after is worth doing all the same.
func runReset(ctx context.Context, c *Console, steps []Step, skip []string) error {
	skip, err := skipped(steps, skip)
	if err != nil {
		return err
	}
	var failed []string
	for i, s := range steps {
		c.begin(i, steps)
		for _, sub := range append([]Step{s}, s.Steps...) {
			if slices.Contains(skip, s.Name) || slices.Contains(skip, s.Name+"/"+sub.Name) {
				c.Note("%s skipped", sub.Name)
				continue
			}
			if sub.Run == nil {
				continue
			}
			err := sub.Run(ctx)
			if errors.Is(err, context.Canceled) || err != nil && slices.Contains(beforeChanges, s.Name) {
				return err
			}
			if err != nil {
				c.Warn("%s", err)
				failed = append(failed, fmt.Sprintf("%s: %s", sub.Name, err))
			}
		}
	}
	if len(failed) > 0 {
		return fault.New(fault.Failure, "run reset again; if it fails the same way, reboot the host and run it once more",
			"not everything could be removed:\n  - %s", strings.Join(failed, "\n  - "))
	}
	return nil
}

// DryRunReset shows what RunReset would do, and changes nothing.
func (n *Node) DryRunReset(ctx context.Context) error {
	defer n.Console.close()
	if n.plan == nil {
		n.Console.Summary(nothingInstalled)
		return nil
	}
	var b strings.Builder
	b.WriteString("Nothing was changed. Reset would run these phases:\n\n")
	for _, step := range n.Reset() {
		if !slices.Contains(n.Resetting.SkipPhases, step.Name) {
			fmt.Fprintf(&b, "  - %s: %s\n", step.Name, step.Doc)
		}
	}
	b.WriteString(DescribePlan(n.plan))
	if err := n.resetPreflight(ctx); err != nil {
		if ctx.Err() != nil {
			return err
		}
		fmt.Fprintf(&b, "\nIt would refuse without --force: %s\n", err)
	}
	n.Console.Summary(b.String())
	return nil
}

// DryRunResetPhase says the same of one phase.
func (n *Node) DryRunResetPhase(name string) error {
	s, ok := find(n.Reset(), strings.TrimSuffix(name, "/all"))
	if !ok {
		return fault.New(fault.Usage, "the phases are: "+strings.Join(Names(n.Reset()), ", "), "there is no phase %q", name)
	}
	n.Console.Summary(fmt.Sprintf("Nothing was changed. The phase %s would %s.\n", name, s.Doc))
	n.Console.close()
	return nil
}
