package phases

import (
	"context"
	"fmt"
	"path/filepath"

	"k8s.io/apimachinery/pkg/runtime"

	"airlift/installer/desired"
	"airlift/installer/host/filesystem"
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

// Step returns the step that installs an add-on. connect makes the API client.
func (a *Addons) Step(name, doc string, connect func(context.Context) error) workflow.Step {
	return workflow.Step{
		Name: name, Doc: doc, Apply: a.install(name, connect),
		Desired: func(context.Context) (desired.List, error) {
			objects, err := a.Objects(name)
			return desired.List{Objects: objects}, err
		},
	}
}

// install installs or prints an add-on.
func (a *Addons) install(name string, connect func(context.Context) error) func(context.Context, desired.List) error {
	return func(ctx context.Context, l desired.List) error {
		switch {
		case len(l.Objects) == 0:
			a.Console.Note("skipped: %s is disabled", name)
			return nil
		case a.Options.ManifestsOnly():
			return a.render(name, l.Objects)
		}
		if a.Content.Stream != nil && !a.Node.Plan.OnePhase {
			// Without the image, the kubelet would try to pull it, and wait up
			// to minutes before the next attempt.
			if err := a.Content.WaitImages(ctx, name); err != nil {
				return err
			}
		}
		if err := connect(ctx); err != nil {
			return err
		}
		return a.API.Apply(ctx, l)
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
	if err := filesystem.OutputDir(o.RenderDir, 0o755); err != nil {
		return fmt.Errorf("writing to --render-dir: %w", err)
	}
	file := filepath.Join(o.RenderDir, name+".yaml")
	if err := filesystem.WriteOutput(file, data, 0o644); err != nil {
		return fmt.Errorf("writing to --render-dir: %w", err)
	}
	c.Note("wrote %s", file)
	return nil
}
