package installer

import (
	"context"
	"errors"
	"fmt"

	"airlift/fault"
	"airlift/images"
	"airlift/installer/patches"
	"airlift/installer/preflight"
	"airlift/installer/render"
)

// checkHost runs all preflight checks on an inspected host, and waits for the
// check of the bundle file. clusterKubelet is the cluster's
// KubeletConfiguration, nil if it is not known yet.
func (n *node) checkHost(ctx context.Context, clusterKubelet []byte) (preflight.Report, error) {
	kubelet, err := n.kubeletConfig(clusterKubelet)
	if err != nil {
		return preflight.Report{}, err
	}
	target := n.target(clusterKubelet, kubelet)
	if target.Disk, err = n.diskSpace(ctx); err != nil {
		return preflight.Report{}, err
	}
	report, err := preflight.Run(ctx, target, n.config.NodeRegistration.IgnorePreflightErrors)
	return n.addFileCheck(ctx, report, err)
}

// target returns the input of the preflight checks. cluster is the cluster's
// KubeletConfiguration and kubelet this node's, both nil if they are not known
// yet.
func (n *node) target(cluster, kubelet []byte) preflight.Target {
	t := preflight.Target{
		Config: n.config, Role: n.plan.role.name, Rerun: n.rerun, Root: n.existing.Path("/"),
		Binaries: n.binaries(), Files: n.hostFiles(), Runtime: n.runtimeErr,
		MissingImages: n.plan.missingImages(n.config), Images: containerdDir, Kubelet: kubelet, FailSwapOn: n.failSwapOn(cluster),
		NetworkPolicy: n.plan.content().HasAddOn(images.NetworkPolicy), Ingress: n.plan.content().HasAddOn(images.Ingress),
	}
	if n.runtime != nil {
		t.RuntimeInUse, t.RuntimeVersion, t.Snapshotter, t.Pods = true, n.runtime.info.Version, n.runtime.info.Snapshotter, n.runtime.pods
	}
	return t
}

// kubeletConfig returns the configuration of this node's kubelet, derived from
// the cluster's. It returns nil if that is not known yet.
func (n *node) kubeletConfig(cluster []byte) ([]byte, error) {
	if cluster == nil {
		return nil, nil
	}
	settings, err := render.NodeKubeletConfig(n.config, cluster)
	if err != nil {
		return nil, err
	}
	settings, _, err = n.plan.patches.Apply(patches.KubeletConfiguration, settings)
	return settings, err
}

// failSwapOn returns the field of this node's KubeletConfiguration as the user set
// it; nil if the user did not, or if the cluster's is not known yet.
func (n *node) failSwapOn(cluster []byte) *bool {
	without := *n.config
	without.Facts.SwapOn = false // otherwise Airlift sets the field
	settings, err := (&node{plan: n.plan, config: &without}).kubeletConfig(cluster)
	if err != nil {
		return nil // the kubelet's rules report it
	}
	return preflight.FailSwapOn(settings)
}

// addFileCheck adds the result of the bundle file's check to the report and the
// error of the preflight checks. A damaged file determines the exit code.
func (n *node) addFileCheck(ctx context.Context, report preflight.Report, err error) (preflight.Report, error) {
	damaged := n.plan.bundle.checked(ctx, n.console)
	if damaged == nil || ctx.Err() != nil {
		return report, errors.Join(err, ctx.Err())
	}
	report.Errors = append(report.Errors, preflight.Problem{Name: "BundleFile", Message: damaged.Error(), Fix: fault.Hint(damaged)})
	if err != nil {
		damaged = fault.Wrap(fmt.Errorf("%w\n%w", damaged, err), fault.Bundle, fault.Hint(damaged))
	}
	return report, damaged
}

// warn prints a report's warnings. It prints minor warnings only with -v 1.
func (n *node) warn(report preflight.Report) {
	for _, w := range report.Warnings {
		if w.Minor && n.console.Verbosity == 0 {
			continue
		}
		n.console.Warn("%s: %s", w.Name, w.Message)
	}
}
