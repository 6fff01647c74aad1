package registrychange

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"airlift/bundle"
	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/registry"
	"airlift/installer/registry/store"
	"airlift/installer/workflow"
	"airlift/internal/fault"
)

// A Remove removes one kept file from the embedded registry, on a control plane.
type Remove struct {
	*node.Machine
	client *cluster.Client
	file   config.KeptBundle
	// images are what no file on this host has without this one: nodes that join later could not pull them.
	images []string
}

// NewRemove finds the file whose ID begins with id, and refuses one that the cluster needs.
func NewRemove(ctx context.Context, id string, h *host.Host, c *workflow.Console) (*Remove, error) {
	r := &Remove{Machine: node.NewMachine(h, c)}
	if !r.IsControlPlane() {
		return nil, fault.New(fault.Preflight, "this host is not a control plane").Hint("run it on one control plane: the others follow")
	}
	var err error
	if r.client, err = node.LoadClient(h, node.AdminConf, node.OwnAPIServer(h), 0); err != nil {
		return nil, err
	}
	return r, r.choose(ctx, id)
}

func (r *Remove) choose(ctx context.Context, id string) error {
	now, err := r.client.Registry(ctx)
	if err != nil {
		return err
	}
	if now == nil || !now.Used {
		return fault.New(fault.Preflight, "the cluster has no embedded registry").Hint("see ./install registry status")
	}
	if r.file, err = find(now.Bundles, id); err != nil {
		return err
	}
	nodes, err := r.client.Nodes(ctx)
	if err != nil {
		return err
	}
	if err := needed(*now, r.file, nodes); err != nil {
		return err
	}
	if len(now.Images) > 0 {
		r.images, err = r.onlyIn(now.Bundles)
	}
	return err
}

// find returns the file whose ID begins with id.
func find(files []config.KeptBundle, id string) (found config.KeptBundle, err error) {
	matches := slices.DeleteFunc(slices.Clone(files), func(b config.KeptBundle) bool { return id == "" || !strings.HasPrefix(b.ID, id) })
	if len(matches) != 1 {
		return found, fault.New(fault.Usage, "the IDs of %d kept files begin with %q", len(matches), id).Hint("list the files: ./install registry status")
	}
	return matches[0], nil
}

// needed refuses the last file with Kubernetes of a version that nodes have, and a file that has layers of another one.
func needed(r config.EmbeddedRegistry, file config.KeptBundle, nodes []cluster.NodeState) error {
	r.Drop(file.ID)
	for _, b := range r.Bundles {
		if b.Base != "" && b.Base == file.ManifestSHA256 && !slices.ContainsFunc(r.Bundles, func(o config.KeptBundle) bool { return o.ManifestSHA256 == b.Base }) {
			return fault.New(fault.Preflight, "the file %.12s has layers of the images in the file %.12s, of which it was the base", file.ID, b.ID).
				Hint(fmt.Sprintf("first remove the other file: ./install registry remove %.12s", b.ID))
		}
	}
	last := len(file.Only) == 0 && !slices.ContainsFunc(r.Bundles, func(b config.KeptBundle) bool {
		return len(b.Only) == 0 && b.KubernetesVersion == file.KubernetesVersion && b.Platform == file.Platform
	})
	if last && slices.ContainsFunc(nodes, func(n cluster.NodeState) bool { return n.Version == file.KubernetesVersion }) {
		return fault.New(fault.Preflight, "the file %.12s is the last one with Kubernetes %s, which nodes of the cluster have", file.ID, file.KubernetesVersion).
			Hint("upgrade these nodes, or keep another file with this version: ./install registry enable; to remove the whole registry: ./install registry disable")
	}
	return nil
}

// onlyIn returns the images of the file that no other file on this host has.
func (r *Remove) onlyIn(files []config.KeptBundle) ([]string, error) {
	kept := store.New(r.Host.Path(registry.Directory))
	own, err := imagesOf(kept, r.file.ID)
	if err != nil {
		return nil, fault.Wrap(err, fault.Preflight, "run it on a control plane that keeps the file: HERE in ./install registry status")
	}
	for _, b := range files {
		if b.ID == r.file.ID {
			continue
		}
		others, err := imagesOf(kept, b.ID)
		if err != nil {
			r.Console.Warn("every node was to have the images of the file %.12s; the list cannot be compared with the file %.12s: %v", r.file.ID, b.ID, err)
		}
		own = slices.DeleteFunc(own, func(image string) bool { return slices.Contains(others, image) })
	}
	return own, nil
}

// imagesOf returns the images of a kept file, by reference.
func imagesOf(s *store.Store, id string) (list []string, err error) {
	kept, err := s.Open(id, func(error) {})
	if err != nil {
		return nil, err
	}
	defer kept.Close()
	var m *bundle.Manifest
	if m, err = kept.File.Manifest(); err != nil {
		return nil, err
	}
	for _, i := range m.Images {
		list = append(list, i.Reference)
	}
	return list, nil
}

// Question describes what Run does.
func (r *Remove) Question() string {
	return fmt.Sprintf("The control planes stop serving the file %s (%s), and then remove their copies. To keep the file, copy it first:\n    cp %s/%s FILE\nContinue?",
		r.file.ID, describe(r.file), registry.Directory, r.file.ID)
}

func describe(b config.KeptBundle) string {
	if len(b.Only) > 0 {
		return "additional, " + strings.Join(b.Only, ", ")
	}
	return "Kubernetes " + b.KubernetesVersion
}

// Run removes the file from the list. The control planes follow.
func (r *Remove) Run(ctx context.Context) error {
	changed, err := r.client.EditRegistry(ctx, func(e *config.EmbeddedRegistry) {
		e.Drop(r.file.ID)
		e.Forget(r.images)
	})
	r.Changed(changed)
	if err != nil {
		return err
	}
	r.Console.Summary(fmt.Sprintf("The file %.12s is not served any more. The control planes remove their copies, an hour after they were written at the earliest.\n", r.file.ID))
	return nil
}
