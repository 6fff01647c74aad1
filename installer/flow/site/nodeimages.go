package site

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"airlift/images/release"
	"airlift/images/store"
	"airlift/installer/cluster/apply"
	"airlift/installer/cluster/inventory"
	"airlift/installer/host"
	"airlift/installer/host/ledger"
	"airlift/installer/node"
	"airlift/installer/payload"
	"airlift/installer/phases"
	"airlift/installer/registry/images"
	"airlift/installer/workflow"
	"airlift/internal/fault"
	"airlift/internal/progress"
)

// A NodeImage is an image in the containerd of this node.
type NodeImage struct {
	// References are the image's names, names with a tag first.
	References []string `json:"references"`
	ID         string   `json:"id"`     // digest of its config
	Digest     string   `json:"digest"` // of its index, or of its manifest if there is no index
	Size       int64    `json:"size"`   // of its compressed layers, in bytes, as crictl prints it
	Pinned     bool     `json:"pinned"`
	Containers int      `json:"containers"` // that use it, running or not
	InBundle   bool     `json:"inBundle"`
	// Imported is "kubernetes" or "site" for an image that Airlift imported.
	Imported string `json:"imported,omitempty"`
	// Served is whether the control planes can bring it back, under all of its names with a tag; missing if containerd of this
	// node asks no embedded registry, or if no control plane answered.
	Served *bool `json:"served,omitempty"`

	image store.Image
}

// NodeImages looks at the images in the containerd of this node, and changes them.
type NodeImages struct {
	*node.Machine
	bundle  *payload.Bundle
	keep    []*payload.Bundle // bundles whose images are not pruned, in addition to bundle
	runtime *store.Store
	needed  map[string]bool   // full names that the cluster's workloads may need
	listed  map[string]string // full names that manifests and 'apply undo' need, with what needs them

	// Unserved lets Prunable choose images that no control plane serves, too.
	Unserved bool
	served   []images.Served // by the control planes
	asked    bool            // served is known
}

// OpenNodeImages connects to the containerd of this node.
func OpenNodeImages(ctx context.Context, b *payload.Bundle, keep []*payload.Bundle, h *host.Host, c *workflow.Console) (*NodeImages, error) {
	n := &NodeImages{Machine: node.NewMachine(h, c), bundle: b, keep: keep}
	var err error
	n.runtime, err = n.NodeRuntime(ctx)
	return n, err
}

// Close closes the connection to containerd.
func (n *NodeImages) Close() { _ = n.runtime.Close() }

// AskRegistry finds out which images the control planes serve, if containerd of this node asks them. If none answers, it
// warns: then no image counts as served.
func (n *NodeImages) AskRegistry(ctx context.Context) {
	if !phases.UsesRegistry(n.Machine) {
		return
	}
	var err error
	if n.served, err = phases.ServedImages(ctx, n.Machine); err != nil {
		n.Console.Warn("cannot find out which images the control planes serve: %v", err)
		return
	}
	n.asked = true
}

// NotHere returns the images that the control planes serve, and that this node does not have.
func (n *NodeImages) NotHere(here []NodeImage) []images.Served {
	return slices.DeleteFunc(slices.Clone(n.served), func(s images.Served) bool {
		return !s.Complete || slices.ContainsFunc(here, func(i NodeImage) bool { return i.ID == s.ID && slices.Contains(i.References, s.Reference) })
	})
}

// comesBack reports whether the control planes serve an image, with all of its layers, under each name with a tag: pods name it
// so.
func (n *NodeImages) comesBack(i NodeImage) (yes bool) {
	for _, name := range i.References {
		repository, digest, byDigest := strings.Cut(name, "@")
		found := slices.ContainsFunc(n.served, func(s images.Served) bool {
			at, _, _ := strings.Cut(s.Reference, "@")
			return s.Complete && s.ID == i.ID && (at == name || byDigest && s.Digest == digest && strings.HasPrefix(at, repository+":"))
		})
		if !found && !byDigest {
			return false
		}
		yes = yes || found
	}
	return yes
}

// List lists the images.
func (n *NodeImages) List(ctx context.Context) ([]NodeImage, error) {
	all, err := n.runtime.Images(ctx)
	if err != nil {
		return nil, err
	}
	list := []NodeImage{}
	for _, i := range all {
		img := NodeImage{
			References: slices.Clone(i.Names), ID: i.ID, Digest: i.Digest, Size: i.Size, Pinned: i.Pinned, Containers: i.Containers,
			InBundle: n.bundle.HasID(i.ID), Imported: i.Kind, image: i,
		}
		if n.asked {
			comesBack := n.comesBack(img)
			img.Served = &comesBack
		}
		slices.SortStableFunc(img.References, func(a, b string) int { return strings.Count(a, "@") - strings.Count(b, "@") })
		list = append(list, img)
	}
	return list, nil
}

// AskCluster finds out which images the cluster's workloads need, on every node and also if no pod
// runs. If that fails, the files to keep must name them.
func (n *NodeImages) AskCluster(ctx context.Context, kubeconfig string) error {
	client, err := node.AdminClient(ctx, n.Host, kubeconfig)
	var list []string
	var manifests map[string]string
	var damaged []apply.Revision
	if err == nil {
		list, err = inventory.NamedImages(ctx, client.API)
	}
	if err == nil {
		manifests, damaged, err = apply.NeededImages(ctx, client.API)
	}
	for _, r := range damaged {
		n.Console.Warn("version %d of manifest %s in the history is damaged, so its images are not kept for 'apply undo'; to remove it: %s", r.Number, r.Manifest, r.RemoveCommand())
	}
	if err != nil && len(n.keep) > 0 {
		n.Console.Warn("cannot find out which images the cluster's workloads need, so only --bundle protects them: %v", err)
		return nil
	}
	if err != nil {
		return fault.New(fault.Preflight, "finding the images that the cluster's workloads need: %w", err).
			Hint("give an administrator's kubeconfig with --kubeconfig FILE, or name every other file whose images the cluster uses with --bundle FILE")
	}
	n.needs(list)
	n.listed = map[string]string{}
	for name, who := range manifests {
		if full, ok := fullName(name); ok {
			n.listed[full] = who
		}
	}
	return nil
}

// needs sets the images that are needed, in the form that containerd uses. What is no name of an
// image is ignored.
func (n *NodeImages) needs(list []string) {
	n.needed = map[string]bool{}
	for _, name := range list {
		if full, ok := fullName(name); ok {
			n.needed[full] = true
		}
	}
}

// fullName returns the form of an image's name that containerd uses. Next to a digest, a tag has no effect.
func fullName(name string) (full string, ok bool) {
	full, err := release.Normalize(name)
	if err != nil {
		return "", false
	}
	if tagged, digest, ok := strings.Cut(full, "@"); ok {
		if tag := strings.LastIndex(tagged, ":"); tag > strings.LastIndex(tagged, "/") {
			full = tagged[:tag] + "@" + digest
		}
	}
	return full, true
}

// Prunable lists the site's own images that Airlift imported and that nothing needs: no container,
// no workload, not this bundle and no bundle to keep. On a node that uses the embedded registry, images that no control plane
// serves stay, unless Unserved is set. It reports the other images that no container uses, except images in one of these
// bundles.
func (n *NodeImages) Prunable(ctx context.Context) ([]NodeImage, error) {
	list, err := n.List(ctx)
	return slices.DeleteFunc(list, func(i NodeImage) bool {
		if i.Imported == store.Kubernetes || i.image.Sandbox || i.Containers > 0 || n.kept(i.ID) {
			return true
		}
		if slices.ContainsFunc(i.References, func(name string) bool { return n.needed[name] }) {
			n.Console.Note("kept %s: no container on this node uses it, but a workload of the cluster names it", i.image.Name())
			return true
		}
		if at := slices.IndexFunc(i.References, func(name string) bool { return n.listed[name] != "" }); at >= 0 {
			n.Console.Note("kept %s: nothing uses it, but %s needs it", i.image.Name(), n.listed[i.References[at]])
			return true
		}
		if i.Imported != store.Site {
			n.Console.Note("kept %s: no container on this node uses it, but one of its names has no Airlift label; if nothing needs it: crictl rmi %s", i.image.Name(), i.image.Name())
			return true
		}
		if phases.UsesRegistry(n.Machine) && !n.Unserved && (i.Served == nil || !*i.Served) {
			n.Console.Note("kept %s: nothing needs it, but no control plane serves it, so it could not be pulled again; to remove such images too: --unserved", i.image.Name())
			return true
		}
		return false
	}), err
}

// kept reports whether one of the bundles has an image.
func (n *NodeImages) kept(id string) bool {
	return n.bundle.HasID(id) || slices.ContainsFunc(n.keep, func(b *payload.Bundle) bool { return b.HasID(id) })
}

// Prune removes images from containerd, and their names from the ledger.
func (n *NodeImages) Prune(ctx context.Context, list []NodeImage) error {
	if err := n.NeedsLedger(); err != nil {
		return err
	}
	for _, i := range list {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := n.runtime.Remove(ctx, i.image); err != nil {
			return err
		}
		var gone []ledger.ImageName
		for _, name := range n.Host.Records().ImageNames() {
			if name.Socket == n.runtime.Socket() && name.Before == nil && (name.Name == i.ID || slices.Contains(i.References, name.Name)) {
				gone = append(gone, name)
			}
		}
		if err := n.Host.Records().ForgetImageNames(gone...); err != nil {
			return err
		}
		n.Console.Note("removed %s", i.image.Name())
	}
	return nil
}

// Unpinnable returns the images of these names that are pinned. Without names these are the
// site's own images that Airlift imported and that this bundle does not contain.
func (n *NodeImages) Unpinnable(ctx context.Context, names []string) ([]NodeImage, error) {
	list, err := n.List(ctx)
	if err != nil {
		return nil, err
	}
	chosen := slices.DeleteFunc(slices.Clone(list), func(i NodeImage) bool { return i.Imported != store.Site || n.kept(i.ID) || i.image.Sandbox })
	if len(names) > 0 {
		chosen, err = named(list, names)
	}
	return slices.DeleteFunc(chosen, func(i NodeImage) bool { return !i.Pinned }), err
}

// named returns the images of these names, in their order.
func named(list []NodeImage, names []string) (chosen []NodeImage, err error) {
	var errs []error
	for _, name := range names {
		full, err := release.Normalize(name)
		if err != nil && !strings.HasPrefix(name, "sha256:") {
			errs = append(errs, err)
			continue
		}
		i := slices.IndexFunc(list, func(i NodeImage) bool { return i.ID == name || slices.Contains(i.References, full) })
		switch {
		case i < 0:
			errs = append(errs, fault.New(fault.Usage, "image %q is not in containerd", name).Hint("list the images: ./install images list"))
		case list[i].image.Sandbox:
			errs = append(errs, fault.New(fault.Preflight, "image %q stays pinned: every pod needs it, and the kubelet could not pull it again", name))
		case !slices.ContainsFunc(chosen, func(c NodeImage) bool { return c.ID == list[i].ID }):
			chosen = append(chosen, list[i])
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return chosen, nil
}

// Unpin leaves images to the kubelet's garbage collection.
func (n *NodeImages) Unpin(ctx context.Context, list []NodeImage) error {
	for _, i := range list {
		if err := n.runtime.Unpin(ctx, i.image); err != nil {
			return err
		}
		n.Console.Note("unpinned %s", i.image.Name())
	}
	return nil
}

// WriteNodeImages prints images as a table, with a row for each further name of an image.
func WriteNodeImages(out io.Writer, list []NodeImage) error {
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	served := slices.ContainsFunc(list, func(i NodeImage) bool { return i.Served != nil })
	title := "IMAGE\tDIGEST\tSIZE\tPINNED\tCONTAINERS\tIN THIS FILE\tIMPORTED"
	if served {
		title += "\tSERVED"
	}
	fmt.Fprintln(table, title)
	yes := map[bool]string{true: "yes", false: "no"}
	for _, i := range list {
		imported := i.Imported
		if imported == "" {
			imported = "-"
		}
		fmt.Fprintf(table, "%s\t%.19s\t%s\t%s\t%d\t%s\t%s", i.image.Name(), i.Digest, progress.Bytes(i.Size), yes[i.Pinned], i.Containers, yes[i.InBundle], imported)
		if served {
			fmt.Fprintf(table, "\t%s", yes[*i.Served])
		}
		fmt.Fprintln(table)
		for _, name := range i.References {
			if name != i.image.Name() && !strings.Contains(name, "@") {
				fmt.Fprintf(table, "%s\t(the same image)\t\t\t\t\t\n", name)
			}
		}
	}
	return table.Flush()
}

// WriteNotHere prints the images that this node does not have, and could pull from the control planes.
func WriteNotHere(out io.Writer, list []images.Served) error {
	if len(list) == 0 {
		return nil
	}
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "\nSERVED, AND NOT ON THIS NODE\tDIGEST\tSIZE")
	for _, s := range list {
		fmt.Fprintf(table, "%s\t%.19s\t%s\n", s.Reference, s.Digest, progress.Bytes(s.Size))
	}
	return table.Flush()
}
