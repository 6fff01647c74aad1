package installer

import (
	"context"
	"fmt"
	"path/filepath"

	"k8s.io/apimachinery/pkg/runtime"

	"airlift/installer/host"
	"airlift/installer/render"
)

// addons installs CoreDNS, kube-proxy and flannel, or prints their manifests.
type addons struct {
	*api
	options InitOptions
}

// install returns a step that installs one add-on. connect gives it an API
// client.
func (a *addons) install(name string, connect func(run func(context.Context) error) func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		objects, err := a.objects(name)
		if err != nil {
			return err
		}
		switch {
		case len(objects) == 0:
			a.console.Note("skipped: %s is disabled", name)
			return nil
		case a.options.ManifestsOnly():
			return a.render(name, objects)
		}
		if a.stream != nil && !a.plan.onePhase {
			// Without the image, the kubelet would try to pull it, and wait up
			// to minutes before the next attempt.
			if err := a.waitImages(ctx, name); err != nil {
				return err
			}
		}
		return connect(func(ctx context.Context) error {
			return a.applied(a.client.Apply(ctx, objects...))
		})(ctx)
	}
}

// objects returns an add-on's objects, none if the add-on is disabled.
func (a *addons) objects(name string) (objects []runtime.Object, err error) {
	switch {
	case name == "coredns" && !a.config.DNS.Disabled:
		objects, err = render.CoreDNS(a.config)
	case name == "kube-proxy" && !a.config.Proxy.Disabled:
		objects, err = render.KubeProxy(a.config)
	case name == "flannel" && a.config.CNI == "flannel":
		objects, err = render.Flannel(a.config)
	}
	if err != nil {
		return nil, err
	}
	objects, used, err := a.plan.patches.AddOn(objects)
	a.reportPatched(name, used)
	return objects, err
}

// render prints an add-on's manifest, or writes it to RenderDir.
func (a *addons) render(name string, objects []runtime.Object) error {
	data, err := render.Manifest(objects...)
	if err != nil {
		return err
	}
	return a.options.renderTo(a.console, name, data)
}

// renderTo prints a manifest, or writes it to RenderDir.
func (o InitOptions) renderTo(c *Console, name string, data []byte) error {
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
