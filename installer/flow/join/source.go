package join

import (
	"context"

	"airlift/bundle/remote"
	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/node"
	"airlift/installer/payload"
	"airlift/installer/preflight"
	"airlift/internal/fault"
)

// attach makes a thin file read what it does not have from the control planes. A host that is a node already uses
// its own credentials, because the token may have expired.
func (j *nodeJoin) attach(ctx context.Context) (err error) {
	b := j.node.Plan.Bundle
	if b.NeedsSource() == nil {
		return nil
	}
	if err := j.needCluster(ctx); err != nil {
		return err
	}
	kubeconfig := j.cluster.found.Kubeconfig
	if node.FileExists(j.Existing, node.KubeletConf) {
		if kubeconfig, err = cluster.ReadCredentials(j.Existing.Path(node.KubeletConf)); err != nil {
			return err
		}
	}
	return b.Attach(ctx, kubeconfig, j.Console)
}

// checkSource returns why a thin file cannot be completed. Without a known cluster, whose CA would verify the
// server, it only finds out whether a service answers at the given address.
func (j *nodeJoin) checkSource(ctx context.Context) error {
	endpoint := j.node.Config.Discovery.APIServerEndpoint
	if j.node.Plan.Bundle.NeedsSource() == nil || j.cluster == nil && endpoint == "" {
		return nil
	}
	if j.cluster != nil {
		return j.attach(ctx)
	}
	host, _, err := config.SplitEndpoint(endpoint, 0)
	if err != nil {
		return nil // discovery reports it
	}
	server := payload.RegistryAddress(host)
	if err := remote.Answers(ctx, server); err != nil {
		return fault.New(fault.Preflight, "this file is thin, and nothing serves the rest at %s, which is no problem if it is a load balancer: %w", server, err).
			Hint("run 'registry enable' of the whole file on a control plane, or join with the whole file")
	}
	return nil
}

// addSource adds the result of checkSource to the report and the error of the preflight checks. Without a known cluster it is
// a warning: the address may be the address of a load balancer for the API servers alone, and the cluster lists the control planes.
func (j *nodeJoin) addSource(ctx context.Context, report preflight.Report, err error) (preflight.Report, error) {
	why := j.checkSource(ctx)
	if why == nil || ctx.Err() != nil {
		return report, err
	}
	found := len(report.Errors)
	report.Add(preflight.Problem{Name: "BundleSource", Message: why.Error(), Fix: fault.Hint(why)}, j.cluster == nil, j.node.Config.NodeRegistration.IgnorePreflightErrors)
	if len(report.Errors) == found || err != nil && fault.ExitCode(err) != fault.Preflight {
		return report, err
	}
	return report, report.Err("checking this host")
}
