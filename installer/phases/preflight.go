package phases

import (
	"context"
	"errors"
	"fmt"

	"airlift/images/release"
	"airlift/installer/node"
	"airlift/installer/patches"
	"airlift/installer/preflight"
	"airlift/installer/render"
	"airlift/internal/fault"
)

// CheckHost runs all preflight checks on an inspected host, and waits for the
// check of the bundle file. clusterKubelet is the cluster's
// KubeletConfiguration, nil if it is not known yet.
func (n *Node) CheckHost(ctx context.Context, clusterKubelet []byte) (preflight.Report, error) {
	kubelet, err := n.KubeletConfig(clusterKubelet)
	if err != nil {
		return preflight.Report{}, err
	}
	target := n.Target(clusterKubelet, kubelet)
	if target.Disk, err = n.diskSpace(ctx); err != nil {
		return preflight.Report{}, err
	}
	if target.PendingPackages, target.Packages = n.packageProblem(ctx); ctx.Err() != nil {
		return preflight.Report{}, ctx.Err()
	}
	if target.ContainerdFiles, err = n.firstContainerdProblems(ctx); err != nil {
		return preflight.Report{}, err
	}
	report, err := preflight.Run(ctx, target, n.Config.NodeRegistration.IgnorePreflightErrors)
	return n.addFileCheck(ctx, report, err)
}

// Target returns the input of the preflight checks. cluster is the cluster's
// KubeletConfiguration and kubelet this node's, both nil if they are not known
// yet.
func (n *Node) Target(cluster, kubelet []byte) preflight.Target {
	t := preflight.Target{
		Config: n.Config, Role: n.Plan.Role.name, Rerun: n.Observed.IsNode, Root: n.Existing.Path("/"),
		Binaries: append(n.Binaries(), n.Command()), Files: n.hostFiles(), Runtime: n.Observed.RuntimeErr,
		MissingImages: n.Plan.MissingImages(n.Config), Images: node.ContainerdDir, Kubelet: kubelet, FailSwapOn: n.failSwapOn(cluster),
		NetworkPolicy: n.Plan.Content().HasAddOn(release.NetworkPolicy), Ingress: n.Plan.Content().HasAddOn(release.Ingress),
	}
	if n.Observed.Runtime != nil {
		t.RuntimeInUse, t.RuntimeVersion, t.Snapshotter, t.Pods = true, n.Observed.Runtime.Info.Version, n.Observed.Runtime.Info.Snapshotter, n.Observed.Runtime.Pods
	}
	return t
}

// KubeletConfig returns the configuration of this node's kubelet, derived from
// the cluster's. It returns nil if that is not known yet.
func (n *Node) KubeletConfig(cluster []byte) ([]byte, error) {
	if cluster == nil {
		return nil, nil
	}
	settings, err := render.NodeKubeletConfig(n.Config, cluster)
	if err != nil {
		return nil, err
	}
	settings, _, err = n.Plan.Patches.Apply(patches.KubeletConfiguration, settings)
	return settings, err
}

// failSwapOn returns the field of this node's KubeletConfiguration as the user set
// it; nil if the user did not, or if the cluster's is not known yet.
func (n *Node) failSwapOn(cluster []byte) *bool {
	without := *n.Config
	without.Facts.SwapOn = false // otherwise Airlift sets the field
	settings, err := (&Node{Plan: n.Plan, Config: &without}).KubeletConfig(cluster)
	if err != nil {
		return nil // the kubelet's rules report it
	}
	return preflight.FailSwapOn(settings)
}

// addFileCheck adds the result of the bundle file's check to the report and the
// error of the preflight checks. A damaged file determines the exit code.
func (n *Node) addFileCheck(ctx context.Context, report preflight.Report, err error) (preflight.Report, error) {
	damaged := n.Plan.Bundle.Checked(ctx, n.Console)
	if damaged == nil || ctx.Err() != nil {
		return report, errors.Join(err, ctx.Err())
	}
	report.Errors = append(report.Errors, preflight.Problem{Name: "BundleFile", Message: damaged.Error(), Fix: fault.Hint(damaged)})
	if err != nil {
		damaged = fault.Wrap(fmt.Errorf("%w\n%w", damaged, err), fault.Bundle, fault.Hint(damaged))
	}
	return report, damaged
}

// Warn prints a report's warnings. It prints minor warnings only with -v 1.
func (n *Node) Warn(report preflight.Report) {
	for _, w := range report.Warnings {
		if w.Minor && n.Console.Verbosity == 0 {
			continue
		}
		n.Console.Warn("%s: %s", w.Name, w.Message)
	}
}
