package site

import (
	"context"
	"path"
	"slices"
	"strings"

	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/node"
	"airlift/installer/payload"
	"airlift/installer/phases"
	"airlift/installer/preflight"
	"airlift/installer/registry"
	"airlift/internal/fault"
)

// A keeper keeps the file of an import in the embedded registry of the cluster.
type keeper struct {
	*node.Machine
	bundle   *payload.Bundle
	allNodes bool

	client     *cluster.Client // set by check
	generation int             // what the nodes then follow
	off        []string        // nodes that are not Ready
}

// serves reports whether this node serves an embedded registry.
func (k *keeper) serves() bool { return k.Host != nil && phases.ServesRegistry(k.Existing) }

// needsFile reports whether this node serves an embedded registry, and does not keep the file yet.
func (k *keeper) needsFile() bool {
	return k.serves() && !node.FileExists(k.Existing, path.Join(registry.Directory, k.bundle.File.ID()))
}

// check refuses what cannot be kept. It changes nothing.
func (k *keeper) check(ctx context.Context, unpinned bool) error {
	if k.allNodes && unpinned {
		return fault.New(fault.Usage, "--all-nodes pins the images on every node, and --pin=false does not").Hint("remove --pin=false; './install images unpin' unpins images later")
	}
	if !k.serves() {
		if k.allNodes {
			return fault.New(fault.Preflight, "--all-nodes needs the embedded registry, and this host does not serve it").
				Hint("run it on a control plane of a cluster with the embedded registry; to start one: ./install registry enable")
		}
		return nil
	}
	var err error
	if k.client, err = node.LoadClient(k.Existing, node.AdminConf, node.OwnAPIServer(k.Existing), 0); err != nil {
		return err
	}
	now, err := k.client.Registry(ctx)
	if err != nil {
		return err
	}
	if now == nil || !now.Used {
		return fault.New(fault.Preflight, "the embedded registry of the cluster was disabled, and this host still has a part of it").Hint("finish that: ./install registry disable")
	}
	if base := k.bundle.Manifest.Base; base != nil && !slices.ContainsFunc(now.Bundles, func(b config.KeptBundle) bool { return b.ManifestSHA256 == base.ManifestSHA256 }) {
		k.Console.Warn("the control planes do not keep the base of this file: they cannot serve images of which layers are only there")
	}
	if not := k.bundle.Manifest.Unservable(); len(not) > 0 {
		k.Console.Warn("the control planes may not be able to serve %s: this file does not have upstream's form of each layer, so a node without these layers could not pull them. Build the file again with --keep-compressed-layers, or without --base", strings.Join(not, ", "))
	}
	r := config.EmbeddedRegistry{Bundles: []config.KeptBundle{registry.Describe(k.bundle.File, k.bundle.Manifest)}}
	report, err := preflight.CheckSpace(ctx, k.Host.Path("/"), phases.KeptSpace(k.Existing, r))
	if len(report.Errors) > 0 {
		return fault.New(fault.Preflight, "%s", report.Errors[0].Message).Hint(report.Errors[0].Fix)
	}
	return err
}

// keep keeps the file. With --all-nodes, nodes then pull its images.
func (k *keeper) keep(ctx context.Context) (err error) {
	var images []string
	if k.allNodes {
		for _, i := range k.bundle.SiteImages() {
			images = append(images, i.Reference)
		}
	}
	k.generation, err = phases.AddToRegistry(ctx, k.Machine, k.client, k.bundle, images)
	return err
}

// wait waits until the nodes have the images. When it is interrupted, they go on.
func (k *keeper) wait(ctx context.Context) (err error) {
	k.off, err = phases.WaitFollowed(ctx, k.Machine, k.client, k.generation)
	if len(k.off) > 0 {
		k.Console.Warn("these nodes are not Ready, and pull the images when they are back: %s", strings.Join(k.off, ", "))
	}
	return err
}

// next returns what the user does next.
func (k *keeper) next() string {
	text := "The control planes serve these images to all nodes.\n"
	switch {
	case k.allNodes:
		text = "Every node that is Ready has these images on its disk.\n"
	case len(k.bundle.Manifest.Unservable()) > 0:
		text = "The control planes serve these images to all nodes, except those in the warning.\n"
	}
	if len(k.bundle.Manifest.Manifests) == 0 {
		return text
	}
	return text + "To apply the manifests:\n\n    " + k.bundle.ApplyCommand() + "\n"
}
