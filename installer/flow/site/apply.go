// Package site adds what a site has of its own to a running cluster: it imports images into the containerd of
// a node, lists and prunes them, and applies manifests.
package site

import (
	"context"
	"strings"

	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/payload"
	"airlift/installer/phases"
	"airlift/installer/workflow"
	"airlift/internal/fault"
)

// ApplyOptions are the user's options for apply.
type ApplyOptions struct {
	phases.InitOptions
	// IgnoreVersion also applies manifests that were built for another minor version of
	// Kubernetes.
	IgnoreVersion bool
	SkipPhases    []string
}

// An Apply applies the site's own manifests of a bundle to a running cluster.
type Apply struct {
	*node.Machine
	node      *phases.Node
	api       *phases.API
	manifests *phases.Manifests
	options   ApplyOptions
}

// NewApply returns an Apply of the bundle's manifests.
func NewApply(b *payload.Bundle, o ApplyOptions, h *host.Host, c *workflow.Console) *Apply {
	return newApply(&phases.Plan{Config: &config.Config{SkipPhases: o.SkipPhases}, Bundle: b, OnePhase: true}, o, node.NewMachine(h, c))
}

func newApply(p *phases.Plan, o ApplyOptions, m *node.Machine) *Apply {
	a := phases.NewAPI(phases.NewContent(phases.NewNode(p, m)))
	return &Apply{Machine: m, node: a.Node, api: a, manifests: phases.NewManifests(a, o.InitOptions), options: o}
}

// ApplyPhases returns the steps of apply, for the names of its phases.
func ApplyPhases() []workflow.Step {
	return newApply(&phases.Plan{Config: new(config.Config)}, ApplyOptions{}, nil).steps()
}

// steps returns the steps of apply in order.
func (a *Apply) steps() []workflow.Step {
	none := len(a.node.Plan.SiteManifests()) == 0
	return []workflow.Step{
		{Name: "preflight", Doc: "check this file, this node and the cluster", Run: a.preflight, Needed: true},
		{Name: "manifests", Doc: "apply the site's own manifests", Desired: a.manifests.Desired, Apply: a.manifests.Apply, Empty: none},
		{Name: "wait-manifests", Doc: "wait for the workloads of the site's manifests", Run: a.manifests.Wait, Empty: none},
	}
}

// Run applies the manifests, or prints them.
func (a *Apply) Run(ctx context.Context) error {
	if a.options.ManifestsOnly() {
		if err := a.node.Plan.Bundle.Checked(ctx, a.Console); err != nil {
			return err
		}
		l, err := a.manifests.Desired(ctx)
		if err != nil {
			return err
		}
		return a.manifests.Print(l)
	}
	return workflow.Run(ctx, a.Console, a.steps(), a.options.SkipPhases)
}

// Close closes the connection to containerd.
func (a *Apply) Close() { a.node.Close() }

// preflight connects to the cluster, and refuses manifests that would not run there. It
// changes nothing.
func (a *Apply) preflight(ctx context.Context) error {
	b := a.node.Plan.Bundle
	if err := b.Checked(ctx, a.Console); err != nil {
		return err
	}
	if len(a.node.Plan.SiteManifests()) == 0 {
		a.Console.Summary("Nothing to do: this file has no manifests.\n")
		return nil
	}
	if err := b.AttachNode(ctx, a.Existing, a.Console); err != nil {
		return err
	}
	socket, err := node.RuntimeSocket(a.Host)
	if err != nil {
		return err
	}
	learned := *a.node.Config
	learned.NodeRegistration.CRISocket = socket
	a.node.Config = &learned
	if a.api.Client, err = node.AdminClient(ctx, a.Host, a.options.Kubeconfig); err != nil {
		return err
	}
	version, err := a.api.Client.Version(ctx)
	if err != nil {
		return err
	}
	if want := b.Manifest.KubernetesVersion; !node.SameMinor(version, want) {
		if !a.options.IgnoreVersion {
			return fault.New(fault.Preflight, "the API server has Kubernetes %s, and the manifests of this file were rendered for %s", version, want).
				Hint("build it again for this cluster: 'bundle build --version " + version + "'; or, if the manifests work with both versions: " + b.Command("apply --ignore-version"))
		}
		a.Console.Warn("the API server has Kubernetes %s, and the manifests of this file were rendered for %s", version, want)
	}
	a.Console.Summary("To see the state of the manifests: " + b.Command("status") + "\n")
	return a.checkImages(ctx)
}

// checkImages refuses manifests whose images were not imported on this node. It cannot check the
// images of other nodes: a Node lists only its 50 largest images.
func (a *Apply) checkImages(ctx context.Context) error {
	b := a.node.Plan.Bundle
	wanted := b.SiteImages()
	if len(wanted) == 0 {
		return nil
	}
	if !a.Exists(node.KubeletConf) {
		a.Console.Warn("this host is not a node, so the check for imported images is skipped")
		return nil
	}
	var err error
	if a.node.Watch.Containerd, err = a.NodeRuntime(ctx); err != nil {
		return err
	}
	a.node.Watch.Containerd.LeaveUnpinned() // it need not be pinned
	missing, err := a.node.Watch.Containerd.Missing(ctx, wanted)
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		var names []string
		for _, i := range missing {
			names = append(names, i.Reference)
		}
		return fault.New(fault.Preflight, "these images of this file are not imported on this node:\n  - %s", strings.Join(names, "\n  - ")).
			Hint("run this on every node first: " + b.Command("import"))
	}
	a.Console.Note("this node has the images of this file; every other node needs them too: %s", b.Command("import"))
	return nil
}
