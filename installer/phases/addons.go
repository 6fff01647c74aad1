package phases

import (
	"context"
	"fmt"
	"path/filepath"

	"k8s.io/apimachinery/pkg/runtime"

	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/render"
	"airlift/installer/workflow"
)

// Addons installs CoreDNS, kube-proxy and flannel, or prints their manifests.
type Addons struct {
	*node.Machine
	Node    *Node
	Content *Content
	API     *API
	Options InitOptions
}

// Install returns a step that installs one add-on. connect gives it an API
// client.
func (a *Addons) Install(name string, connect func(run func(context.Context) error) func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		objects, err := a.Objects(name)
		if err != nil {
			return err
		}
		switch {
		case len(objects) == 0:
			a.Console.Note("skipped: %s is disabled", name)
			return nil
		case a.Options.ManifestsOnly():
			return a.render(name, objects)
		}
		if a.Content.Stream != nil && !a.Node.Plan.OnePhase {
			// Without the image, the kubelet would try to pull it, and wait up
			// to minutes before the next attempt.
			if err := a.Content.WaitImages(ctx, name); err != nil {
				return err
			}
		}
		return connect(func(ctx context.Context) error {
			return a.Applied(a.API.Client.Apply(ctx, objects...))
		})(ctx)
	}
}

// Objects returns an add-on's objects, none if the add-on is disabled.
func (a *Addons) Objects(name string) (objects []runtime.Object, err error) {
	switch {
	case name == "coredns" && !a.Node.Config.DNS.Disabled:
		objects, err = render.CoreDNS(a.Node.Config)
	case name == "kube-proxy" && !a.Node.Config.Proxy.Disabled:
		objects, err = render.KubeProxy(a.Node.Config)
	case name == "flannel" && a.Node.Config.CNI == "flannel":
		objects, err = render.Flannel(a.Node.Config)
	}
	if err != nil {
		return nil, err
	}
	objects, used, err := a.Node.Plan.Patches.AddOn(objects)
	a.ReportPatched(name, used)
	return objects, err
}

// render prints an add-on's manifest, or writes it to RenderDir.
func (a *Addons) render(name string, objects []runtime.Object) error {
	data, err := render.Manifest(objects...)
	if err != nil {
		return err
	}
	return a.Options.renderTo(a.Console, name, data)
}

// renderTo prints a manifest, or writes it to RenderDir.
func (o InitOptions) renderTo(c *workflow.Console, name string, data []byte) error {
	if o.PrintManifest {
		_, err := fmt.Fprintf(c.Results, "---\n%s", data)
		return err
	}
	if err := host.OutputDir(o.RenderDir, 0o755); err != nil {
		return fmt.Errorf("writing to --render-dir: %w", err)
	}
	file := filepath.Join(o.RenderDir, name+".yaml")
	if err := host.WriteOutput(file, data, 0o644); err != nil {
		return fmt.Errorf("writing to --render-dir: %w", err)
	}
	c.Note("wrote %s", file)
	return nil
}
