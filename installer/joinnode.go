package installer

import (
	"cmp"
	"context"
	"path"
	"slices"

	"airlift/installer/cluster"
	"airlift/installer/pki"
	"airlift/installer/preflight"
)

// Preflight reports everything that prevents this host from joining. It changes
// nothing.
func (j *nodeJoin) Preflight(ctx context.Context) (preflight.Report, error) {
	if err := j.inspect(ctx); err != nil {
		return preflight.Report{}, err
	}
	var kubelet []byte
	if j.cluster != nil {
		kubelet = j.cluster.kubelet
	}
	return j.checkHost(ctx, kubelet)
}

func (j *nodeJoin) preflight(ctx context.Context) error {
	report, err := j.Preflight(ctx)
	j.warn(report)
	return err
}

// checkKubelet checks the kubelet's configuration and this node's addresses,
// unless they have passed already. On a worker, preflight runs before the
// cluster's configuration is known.
func (j *nodeJoin) checkKubelet(ctx context.Context) error {
	if j.cluster == nil || j.cluster.kubelet == nil || j.kubeletPassed {
		return nil
	}
	settings, err := j.kubeletConfig(j.cluster.kubelet)
	if err != nil {
		return err
	}
	report, err := preflight.Discovered(ctx, j.target(j.cluster.kubelet, settings), j.config.NodeRegistration.IgnorePreflightErrors)
	j.warn(report)
	j.kubeletPassed = err == nil
	return err
}

func (j *nodeJoin) unpack(ctx context.Context) error {
	if err := j.ready(ctx); err != nil {
		return err
	}
	if err := j.checkKubelet(ctx); err != nil {
		return err
	}
	return j.content.unpack(ctx)
}

func (j *nodeJoin) prepareRuntime(ctx context.Context) error {
	return j.runtimeStep.run(ctx, j.cluster.kubeProxy, true)
}

// images waits for the images that this node needs before its kubelet starts.
// The cluster's DaemonSets create pods for this node as soon as it is
// registered. Without the images, the kubelet would try to pull them, and wait
// up to minutes before the next attempt.
func (j *nodeJoin) images(ctx context.Context) error {
	return j.waitImages(ctx, j.plan.role.components...)
}

// startKubelet starts the kubelet with the credentials for its TLS bootstrap.
func (j *nodeJoin) startKubelet(ctx context.Context) error {
	if j.plan.onePhase {
		if err := j.checkNodeName(ctx); err != nil {
			return err
		}
	}
	if err := j.writeBootstrap(); err != nil {
		return err
	}
	if err := j.checkKubelet(ctx); err != nil {
		return err
	}
	return j.kubelet.start(ctx, j.cluster.kubelet)
}

// writeBootstrap writes the credentials for the kubelet's TLS bootstrap, unless
// the kubelet already has its own kubeconfig.
func (j *nodeJoin) writeBootstrap() error {
	var files []pki.File
	// Kubelets of this cluster look for the CA at the first path.
	places := []string{path.Join(j.config.CertificatesDir, "ca.crt"), j.config.CACertPath}
	for _, ca := range slices.Compact(places) {
		if !j.exists(ca) || !j.role.keepsCA() {
			files = append(files, pki.File{Path: ca, Data: j.cluster.found.CA, Mode: 0o644})
		}
	}
	if !j.exists(kubeletConf) {
		kubeconfig := j.cluster.found.Kubeconfig
		if server := j.role.bootstrapServer(); server != "" {
			var err error
			if kubeconfig, err = cluster.WithServer(kubeconfig, server); err != nil {
				return err
			}
		}
		files = append(files, pki.File{Path: bootstrapConf, Data: kubeconfig, Mode: 0o600})
	}
	return j.write(files...)
}

// waitBootstrap waits until the kubelet has its client certificate.
func (j *nodeJoin) waitBootstrap(ctx context.Context) error {
	bootstrap := cluster.Bootstrap{
		Node: j.config.NodeRegistration.Name, Kubeconfig: j.host.Path(kubeletConf), Token: j.host.Path(bootstrapConf),
		Server: cmp.Or(j.role.bootstrapServer(), j.cluster.found.Server),
	}
	var own *cluster.Client
	var needs dependency
	if j.role.bootstrapServer() != "" { // of this host
		needs = j.localAPI()
	}
	err := j.watched(ctx, needs, func(ctx context.Context) (err error) {
		own, err = bootstrap.Wait(ctx, cluster.Waiting{Timeout: cmp.Or(j.config.Timeouts.TLSBootstrap, nodeTimeout), Report: j.report})
		return err
	})
	if err != nil {
		return err
	}
	if j.exists(bootstrapConf) {
		if err := j.host.Remove(bootstrapConf); err != nil {
			return err
		}
	}
	if j.client == nil { // on a worker
		j.client = own
		j.client.SetTimeout(j.config.Timeouts.KubernetesAPICall)
	}
	if err := j.kubelet.waitKubelet(ctx); err != nil {
		return err
	}
	return j.registered(ctx)
}

// waitJoined returns a step that waits for the node, and then sets the summary
// of a run that changed something.
func (j *nodeJoin) waitJoined(summary string) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := j.waitNode(ctx); err != nil {
			return err
		}
		if j.changes == 0 {
			j.console.Summary("This host is already a node of the cluster. Nothing was changed.\n")
		} else {
			j.console.Summary(summary)
		}
		return nil
	}
}
