package installer

import (
	"context"
	"strings"

	"airlift/fault"
	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/host"
)

// ApplyOptions are the user's options for apply.
type ApplyOptions struct {
	InitOptions
	// IgnoreVersion also applies manifests that were built for another minor version of
	// Kubernetes.
	IgnoreVersion bool
	SkipPhases    []string
}

// An Apply applies the site's own manifests of a bundle to a running cluster.
type Apply struct {
	*manifests
	options ApplyOptions
}

// NewApply returns an Apply of the bundle's manifests.
func NewApply(b *Bundle, o ApplyOptions, h *host.Host, c *Console) *Apply {
	return newApply(&Plan{config: &config.Config{SkipPhases: o.SkipPhases}, bundle: b, onePhase: true}, o, newMachine(h, c))
}

func newApply(p *Plan, o ApplyOptions, m *machine) *Apply {
	a := &api{content: &content{node: newNode(p, m)}}
	return &Apply{manifests: &manifests{api: a, options: o.InitOptions}, options: o}
}

// ApplyPhases returns the steps of apply, for the names of its phases.
func ApplyPhases() []Step {
	return newApply(&Plan{config: new(config.Config)}, ApplyOptions{}, nil).Steps()
}

// Steps returns the steps of apply in order.
func (a *Apply) Steps() []Step {
	none := len(a.plan.siteManifests()) == 0
	return []Step{
		{Name: "preflight", Doc: "check this file, this node and the cluster", Run: a.preflight, Needed: true},
		{Name: "manifests", Doc: "apply the site's own manifests", Run: a.apply, Empty: none},
		{Name: "wait-manifests", Doc: "wait for the workloads of the site's manifests", Run: a.wait, Empty: none},
	}
}

// Run applies the manifests, or prints them.
func (a *Apply) Run(ctx context.Context) error {
	if a.options.ManifestsOnly() {
		if err := a.plan.bundle.checked(ctx, a.console); err != nil {
			return err
		}
		return a.render(ctx)
	}
	return Run(ctx, a.console, a.Steps(), a.options.SkipPhases)
}

// Close closes the connection to containerd.
func (a *Apply) Close() { a.node.close() }

// preflight connects to the cluster, and refuses manifests that would not run there. It
// changes nothing.
func (a *Apply) preflight(ctx context.Context) error {
	b := a.plan.bundle
	if err := b.checked(ctx, a.console); err != nil {
		return err
	}
	if len(a.plan.siteManifests()) == 0 {
		a.console.Summary("Nothing to do: this file has no manifests.\n")
		return nil
	}
	socket, err := a.kubeletSocket()
	if err != nil {
		return err
	}
	learned := *a.config
	learned.NodeRegistration.CRISocket = socket
	a.config = &learned
	if a.client, err = adminClient(ctx, a.host, a.options.Kubeconfig); err != nil {
		return err
	}
	version, err := a.client.Version(ctx)
	if err != nil {
		return err
	}
	if want := b.manifest.KubernetesVersion; !sameMinor(version, want) {
		if !a.options.IgnoreVersion {
			return fault.New(fault.Preflight, "build it again for this cluster: 'bundle build --version "+version+"'; or, if the manifests work with both versions: "+b.command("apply --ignore-version"),
				"the API server has Kubernetes %s, and the manifests of this file were rendered for %s", version, want)
		}
		a.console.Warn("the API server has Kubernetes %s, and the manifests of this file were rendered for %s", version, want)
	}
	a.console.Summary("To see the state of the manifests: " + b.command("status") + "\n")
	return a.checkImages(ctx)
}

// checkImages refuses manifests whose images were not imported on this node. Those of other
// nodes are not known here: a Node lists only its 50 largest images.
func (a *Apply) checkImages(ctx context.Context) error {
	b := a.plan.bundle
	wanted := b.siteImages()
	if len(wanted) == 0 {
		return nil
	}
	if !a.isNode() {
		a.console.Warn("this host is not a node, so the check for imported images is skipped")
		return nil
	}
	var err error
	if a.containerd, err = a.nodeRuntime(ctx); err != nil {
		return err
	}
	a.containerd.LeaveUnpinned() // it need not be pinned
	missing, err := a.containerd.Missing(ctx, wanted)
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		var names []string
		for _, i := range missing {
			names = append(names, i.Reference)
		}
		return fault.New(fault.Preflight, "run this on every node first: "+b.command("import"),
			"these images of this file are not imported on this node:\n  - %s", strings.Join(names, "\n  - "))
	}
	a.console.Note("this node has the images of this file; every other node needs them too: %s", b.command("import"))
	return nil
}

// adminClient connects to the cluster with the kubeconfig of an administrator.
func adminClient(ctx context.Context, h *host.Host, kubeconfig string) (*cluster.Client, error) {
	if kubeconfig == adminConf && !fileExists(h, adminConf) {
		is := "not a node of a cluster"
		if fileExists(h, kubeletConf) {
			is = "a worker"
		}
		return nil, fault.New(fault.Failure, "run it on a control plane, or set --kubeconfig", "this host is %s: it has no kubeconfig of an administrator", is)
	}
	client, err := cluster.Load(kubeconfig, "")
	if err != nil {
		return nil, fault.Wrap(err, fault.Failure, "run it on a control plane as root, or set --kubeconfig")
	}
	if !client.Answers(ctx) {
		return nil, fault.New(fault.Failure, "see the kubelet's log: journalctl -u kubelet -e; the containers' logs are in /var/log/pods",
			"the API server at %s does not answer", client.Server())
	}
	return client, nil
}
