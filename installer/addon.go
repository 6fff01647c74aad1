package installer

import (
	"context"
	"fmt"
	"path/filepath"

	"k8s.io/apimachinery/pkg/runtime"

	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/render"
)

// addon installs one add-on, or makes a manifest of it for somebody to apply
// with a tool of their own.
func (n *Node) addon(name string) func(context.Context) error {
	return func(ctx context.Context) error {
		objects, err := n.addonObjects(name)
		if err != nil {
			return err
		}
		switch {
		case len(objects) == 0:
			n.Console.Note("%s is not wanted", name)
			return nil
		case n.PrintManifest || n.RenderDir != "":
			return n.renderAddon(name, objects)
		}
		if n.payload != nil && !n.Single {
			// The kubelet would try to pull an image that is not there yet, and wait
			// for longer each time before it looks again: up to minutes.
			if err := n.waitImages(name)(ctx); err != nil {
				return err
			}
		}
		if name == "coredns" {
			objects = n.holdCoreDNS(objects)
		}
		return n.withAPI(n.apply(func(*config.Config) ([]runtime.Object, error) { return objects, nil }))(ctx)
	}
}

// addonObjects are an add-on's objects, none for one that is not wanted.
func (n *Node) addonObjects(name string) (objects []runtime.Object, err error) {
	switch {
	case name == "coredns" && !n.Config.DNS.Disabled:
		objects, err = render.CoreDNS(n.Config)
	case name == "kube-proxy" && !n.Config.Proxy.Disabled:
		objects, err = render.KubeProxy(n.Config)
	case name == "flannel" && n.Config.CNI == "flannel":
		objects, err = render.Flannel(n.Config)
	}
	if err != nil {
		return nil, err
	}
	objects, used, err := n.patches.AddOn(objects)
	n.sayPatched(name, used)
	return objects, err
}

// renderAddon prints an add-on's manifest, or writes it to RenderDir.
func (n *Node) renderAddon(name string, objects []runtime.Object) error {
	data, err := render.Manifest(objects...)
	if err != nil {
		return err
	}
	if n.PrintManifest {
		_, err := fmt.Fprintf(n.Console.Results, "---\n%s", data)
		return err
	}
	if err := host.OutputDir(n.RenderDir, 0o755); err != nil {
		return fmt.Errorf("writing to --render-dir: %w", err)
	}
	file := filepath.Join(n.RenderDir, name+".yaml")
	if err := host.WriteOutput(file, data, 0o644); err != nil {
		return fmt.Errorf("writing to --render-dir: %w", err)
	}
	n.Console.Note("wrote %s", file)
	return nil
}
