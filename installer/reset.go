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

// Reset lists the steps that put the host back to where init or join works
// again. The first two come before anything on the host has changed, and
// end the reset when they fail; each later one goes on past what it cannot
// remove and says so at its end.
func (n *Node) Reset() []Step {
	return []Step{
		{Name: "preflight", Doc: "look at what is installed here", Run: n.resetPreflight},
		{Name: "remove-etcd-member", Doc: "take this host's etcd out of the cluster", Run: n.removeEtcdMember},
		{Name: "stop-kubelet", Doc: "stop the kubelet", Run: n.stopKubelet},
		{Name: "remove-pods", Doc: "stop and remove all pods", Run: n.removePods},
		{Name: "cleanup-node", Doc: "remove what was installed and made", Steps: []Step{
			{Name: "images", Doc: "restore the image names in an existing containerd", Run: n.restoreImages},
			{Name: "runtime", Doc: "stop containerd", Run: n.Host.StopRuntime},
			{Name: "mounts", Doc: "unmount volumes", Run: n.unmount},
			{Name: "interfaces", Doc: "remove the pod network's interfaces", Run: n.Host.RemoveInterfaces},
			{Name: "netfilter", Doc: "remove packet filter rules", Run: n.removeNetfilter},
			{Name: "routes", Doc: "remove routes", Run: n.Host.RemoveRoutes},
			{Name: "state", Doc: "remove certificates, etcd's data and the kubelet's", Run: n.removeState},
			{Name: "installed", Doc: "remove units, settings and programs", Run: n.removeInstalled},
		}},
	}
}

// stopKubelet also ends a stand-in that is still there.
func (n *Node) stopKubelet(ctx context.Context) error {
	if err := n.Host.Stop(ctx, standInUnit); err != nil {
		return err
	}
	return n.Host.StopKubelet(ctx)
}

// resetPreflight tells what there is to reset, and refuses what would end a
// cluster that others are in.
func (n *Node) resetPreflight(ctx context.Context) error {
	if !n.Host.Used() && !n.exists(config.KubernetesDir) {
		n.Console.Note("nothing was installed here; removing what may be left all the same")
	}
	if n.Resetting.Force || slices.Contains(n.Resetting.SkipPhases, "remove-etcd-member") {
		return nil
	}
	return n.checkEtcdReset(ctx)
}

// removePods asks the runtime to stop all pods, then kills what remains.
func (n *Node) removePods(ctx context.Context) error {
	if n.exists(n.resetSocket()) {
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

func (n *Node) removeState(ctx context.Context) error { return n.Host.RemoveState(ctx, n.resetState()) }

// resetState says which folders hold this node's data. Where the API server's
// pod tells of an external etcd, a folder of etcd's on this host is not ours.
func (n *Node) resetState() host.ResetState {
	s := host.ResetState{
		CertificatesDir: cmp.Or(n.Resetting.CertificatesDir, config.CertificatesDir),
		EtcdDataDir:     config.EtcdDataDir,
		TmpDir:          n.Resetting.CleanupTmpDir,
	}
	if e, err := n.findEtcd(); err == nil && e != nil {
		s.EtcdDataDir = e.dataDir
	} else if flags, _, err := n.staticPod("kube-apiserver"); err == nil && flags != nil {
		s.EtcdDataDir = ""
	}
	return s
}

func (n *Node) removeInstalled(ctx context.Context) error {
	kept, err := n.Host.RemoveInstalled(ctx)
	for _, k := range kept {
		n.Console.Note("left in place: %s", k)
	}
	return err
}

// RunReset resets the host.
func (n *Node) RunReset(ctx context.Context) error {
	name := n.nodeName()
	if err := runReset(ctx, n.Console, n.Reset(), n.Resetting.SkipPhases); err != nil {
		return err
	}
	left := ""
	if name != "" && !n.lastControlPlane {
		left = fmt.Sprintf("In the cluster its Node object is left, which there can be removed: kubectl delete node %s\n", name)
	}
	before := "This host is as it was before."
	if len(n.leftImages) > 0 {
		before = "This host is as it was before, except:\n    " + strings.Join(n.leftImages, "\n    ") + "\n"
	}
	n.Console.Summary(before + " Not touched: logs in /var/log, your own kubeconfig files (~/.kube).\n" + left)
	n.Console.close()
	return nil
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

// DryRunReset says what RunReset would do, and changes nothing.
func (n *Node) DryRunReset(ctx context.Context) error {
	s := n.resetState()
	folders := []string{config.ManifestsDir, s.CertificatesDir, config.KubeletDir}
	if s.EtcdDataDir != "" {
		folders = append(folders, s.EtcdDataDir)
	}
	var b strings.Builder
	b.WriteString("Nothing was changed. Reset would, in this order:\n\n")
	for _, step := range n.Reset() {
		if slices.Contains(n.Resetting.SkipPhases, step.Name) {
			continue
		}
		fmt.Fprintf(&b, "  - %s (%s)\n", step.Doc, step.Name)
	}
	fmt.Fprintf(&b, "\nEmptied would be:\n\n    %s\n", strings.Join(folders, "\n    "))
	if installed := n.Host.Installed(); len(installed) > 0 {
		fmt.Fprintf(&b, "\nRemoved would be what install has put here:\n\n    %s\n", strings.Join(installed, "\n    "))
	}
	if err := n.resetPreflight(ctx); err != nil {
		if ctx.Err() != nil {
			return err
		}
		fmt.Fprintf(&b, "\nBut it would refuse to, without --force: %s\n", err)
	}
	n.Console.Summary(b.String())
	n.Console.close()
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
