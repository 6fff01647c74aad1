package join

import (
	"cmp"
	"context"
	"path"
	"slices"

	"airlift/installer/cluster"
	"airlift/installer/cluster/wait"
	"airlift/installer/desired"
	"airlift/installer/node"
	"airlift/installer/phases"
	"airlift/installer/pki"
	"airlift/installer/pods"
	"airlift/installer/preflight"
	"airlift/installer/workflow"
)

// findProblems reports everything that prevents this host from joining. It changes
// nothing.
func (j *nodeJoin) findProblems(ctx context.Context) (preflight.Report, error) {
	if err := j.node.Inspect(ctx); err != nil {
		return preflight.Report{}, err
	}
	var kubelet []byte
	if j.cluster != nil {
		kubelet = j.cluster.kubelet
	}
	report, err := j.node.CheckHost(ctx, kubelet)
	return j.addSource(ctx, report, err)
}

// packages returns the step packages. A thin file finds the cluster for it, and verifies its CA.
func (j *nodeJoin) packages() workflow.Step {
	p := phases.NewPackages(j.node)
	p.Attach = j.attach
	return p.Step()
}

func (j *nodeJoin) preflight(ctx context.Context) error {
	report, err := j.findProblems(ctx)
	j.node.Warn(report)
	return err
}

// checkKubelet checks the kubelet's configuration and this node's addresses,
// unless they have passed already. On a worker, preflight runs before the
// cluster's configuration is known.
func (j *nodeJoin) checkKubelet(ctx context.Context) error {
	if j.cluster == nil || j.cluster.kubelet == nil || j.kubeletPassed {
		return nil
	}
	settings, err := j.node.KubeletConfig(j.cluster.kubelet)
	if err != nil {
		return err
	}
	report, err := preflight.Discovered(ctx, j.node.Target(j.cluster.kubelet, settings), j.node.Config.NodeRegistration.IgnorePreflightErrors)
	j.node.Warn(report)
	j.kubeletPassed = err == nil
	return err
}

// ready checks what must be true before the first change.
func (j *nodeJoin) ready(ctx context.Context) error {
	if err := j.node.Ready(ctx); err != nil {
		return err
	}
	if err := j.attach(ctx); err != nil {
		return err
	}
	return j.checkKubelet(ctx)
}

func (j *nodeJoin) prepareRuntime(ctx context.Context, l desired.List) error {
	return j.runtimeStep.Apply(ctx, l, j.cluster.kubeProxy, j.cluster.kubelet, true)
}

// images waits for the images that this node needs before its kubelet starts.
// The cluster's DaemonSets create pods for this node as soon as it is
// registered. Without the images, the kubelet would try to pull them, and wait
// up to minutes before the next attempt.
func (j *nodeJoin) images(ctx context.Context) error {
	if err := j.attach(ctx); err != nil { // the phase may run alone
		return err
	}
	return j.content.WaitImages(ctx, j.node.Plan.Role.Components...)
}

// checkBeforeKubelet checks what the kubelet needs, unless an earlier step has.
func (j *nodeJoin) checkBeforeKubelet(ctx context.Context) error {
	if err := j.find(ctx); err != nil {
		return err
	}
	if j.node.Plan.OnePhase {
		if err := j.checkNodeName(ctx); err != nil {
			return err
		}
	}
	return j.checkKubelet(ctx)
}

// kubeletFiles returns the kubelet's files, with the credentials for its TLS bootstrap.
func (j *nodeJoin) kubeletFiles(context.Context) (desired.List, error) {
	bootstrap, err := j.bootstrapFiles()
	if err != nil {
		return desired.List{}, err
	}
	kubelet, err := j.kubelet.Desired(j.cluster.kubelet)
	return desired.List{Files: bootstrap}.Add(kubelet), err
}

// bootstrapFiles returns the credentials for the kubelet's TLS bootstrap, unless
// the kubelet already has its own kubeconfig.
func (j *nodeJoin) bootstrapFiles() (files []pki.File, err error) {
	// Kubelets of this cluster look for the CA at the first path.
	places := []string{path.Join(j.node.Config.CertificatesDir, "ca.crt"), j.node.Config.CACertPath}
	for _, ca := range slices.Compact(places) {
		if !j.Exists(ca) || !j.role.keepsCA() {
			files = append(files, pki.File{Path: ca, Data: j.cluster.found.CA, Mode: 0o644})
		}
	}
	if !j.Exists(node.KubeletConf) {
		kubeconfig := j.cluster.found.Kubeconfig
		if server := cmp.Or(j.balancer(), j.role.bootstrapServer()); server != "" {
			if kubeconfig, err = cluster.WithServer(kubeconfig, server); err != nil {
				return nil, err
			}
		}
		files = append(files, pki.File{Path: node.BootstrapConf, Data: kubeconfig, Mode: 0o600})
	}
	return files, nil
}

// waitBootstrap waits until the kubelet has its client certificate.
func (j *nodeJoin) waitBootstrap(ctx context.Context) error {
	bootstrap := cluster.Bootstrap{
		Node: j.node.Config.NodeRegistration.Name, Kubeconfig: j.Host.Path(node.KubeletConf), Token: j.Host.Path(node.BootstrapConf),
		Server: cmp.Or(j.balancer(), j.role.bootstrapServer(), j.cluster.found.Server),
	}
	var own *cluster.Client
	var needs pods.Dependency
	if j.role.bootstrapServer() != "" { // of this host
		needs = j.node.LocalAPI()
	}
	err := j.node.Watch.Watched(ctx, needs, func(ctx context.Context) (err error) {
		own, err = bootstrap.Wait(ctx, wait.Limit{Timeout: cmp.Or(j.node.Config.Timeouts.TLSBootstrap, phases.NodeTimeout), Report: j.Report})
		return err
	})
	if err != nil {
		return err
	}
	if j.Exists(node.BootstrapConf) {
		if err := j.Host.Remove(node.BootstrapConf); err != nil {
			return err
		}
	}
	if j.api.Client == nil { // on a worker
		j.api.Client = own
		j.api.Client.SetTimeout(j.node.Config.Timeouts.KubernetesAPICall)
	}
	if err := j.node.WaitKubelet(ctx); err != nil {
		return err
	}
	return j.api.Registered(ctx)
}

// waitJoined returns a step that waits for the node, and then sets the summary
// of a run that changed something.
func (j *nodeJoin) waitJoined(summary string) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := j.api.WaitNode(ctx); err != nil {
			return err
		}
		if j.Changes == 0 {
			j.Console.Summary("This host is already a node of the cluster. Nothing was changed.\n")
		} else {
			j.Console.Summary(summary)
		}
		return nil
	}
}

// balancer is the URL of the balancer of this node, "" if the cluster's nodes have none.
func (j *nodeJoin) balancer() string {
	if !j.node.Config.Endpoint.Balancer {
		return ""
	}
	return j.node.Config.NodeURL()
}
