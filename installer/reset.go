package installer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"airlift/fault"
	"airlift/images/store"
	"airlift/installer/config"
	"airlift/installer/host"
)

// podTimeout bounds how long reset waits for pods to stop before it kills
// what is left of them.
const podTimeout = 60 * time.Second

// Reset lists the steps that put the host back to where init or join works
// again. Each goes on past what it cannot remove and says so at its end.
func (n *Node) Reset() []Step {
	return []Step{
		{Name: "preflight", Doc: "look at what is installed here", Run: n.resetPreflight},
		{Name: "stop-kubelet", Doc: "stop the kubelet", Run: n.Host.StopKubelet},
		{Name: "remove-pods", Doc: "stop and remove all pods", Run: n.removePods},
		{Name: "cleanup-node", Doc: "remove what was installed and made", Steps: []Step{
			{Name: "runtime", Doc: "stop containerd", Run: n.Host.StopRuntime},
			{Name: "mounts", Doc: "unmount volumes", Run: n.Host.Unmount},
			{Name: "interfaces", Doc: "remove the pod network's interfaces", Run: n.Host.RemoveInterfaces},
			{Name: "netfilter", Doc: "remove packet filter rules", Run: n.removeNetfilter},
			{Name: "routes", Doc: "remove routes", Run: n.Host.RemoveRoutes},
			{Name: "state", Doc: "remove certificates, etcd's data and the kubelet's", Run: n.removeState},
			{Name: "installed", Doc: "remove units, settings and programs", Run: n.removeInstalled},
		}},
	}
}

// resetPreflight tells what there is to reset.
func (n *Node) resetPreflight(context.Context) error {
	if !n.Host.Used() && !n.exists(config.KubernetesDir) {
		n.Console.Note("nothing was installed here; removing what may be left all the same")
	}
	return nil
}

// removePods asks the runtime to stop all pods, then kills what remains.
func (n *Node) removePods(ctx context.Context) error {
	if n.exists(config.ContainerdSocket) {
		if err := n.removePodsThroughCRI(ctx); err != nil {
			n.Console.Warn("%s; killing what is left", err)
		}
	}
	return n.Host.KillPods(ctx)
}

func (n *Node) removePodsThroughCRI(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, podTimeout)
	defer cancel()
	s, err := store.Connect(ctx, config.ContainerdSocket)
	if err != nil {
		return err
	}
	defer s.Close()
	return s.RemovePods(ctx)
}

func (n *Node) removeNetfilter(ctx context.Context) error {
	warnings, err := n.Host.RemoveNetfilter(ctx)
	for _, w := range warnings {
		n.Console.Warn("%s", w)
	}
	return err
}

func (n *Node) removeState(ctx context.Context) error {
	return n.Host.RemoveState(ctx, host.ResetState{
		CertificatesDir: config.CertificatesDir,
		EtcdDataDir:     config.EtcdDataDir,
	})
}

func (n *Node) removeInstalled(ctx context.Context) error {
	kept, err := n.Host.RemoveInstalled(ctx)
	for _, k := range kept {
		n.Console.Note("left in place: %s", k)
	}
	return err
}

// RunReset runs reset's steps. Unlike init and join it goes on after a step
// that failed, because what comes after is worth doing all the same.
func RunReset(ctx context.Context, c *Console, steps []Step) error {
	var failed []string
	for i, s := range steps {
		c.begin(i+1, len(steps), s)
		for _, sub := range append([]Step{s}, s.Steps...) {
			if sub.Run == nil {
				continue
			}
			err := sub.Run(ctx)
			if errors.Is(err, context.Canceled) || err != nil && i == 0 {
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
	c.Summary("This host is as it was before. Not touched: logs in /var/log, your own kubeconfig files (~/.kube).\n")
	c.close()
	return nil
}
