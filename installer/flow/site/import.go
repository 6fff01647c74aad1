package site

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"airlift/bundle"
	"airlift/images/release"
	"airlift/images/store"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/payload"
	"airlift/installer/phases"
	"airlift/installer/preflight"
	"airlift/installer/workflow"
	"airlift/internal/fault"
	"airlift/internal/progress"
)

// ImportOptions are the user's options for import.
type ImportOptions struct {
	// Base is the file that has the layers that the bundle leaves out, or nil.
	Base *payload.Bundle
	// Unpinned leaves the images to the kubelet's garbage collection.
	Unpinned bool
	// AllNodes brings the images to every node.
	AllNodes bool
}

// An Import imports the site's own images of a bundle into the containerd of this node.
type Import struct {
	*node.Machine
	bundle  *payload.Bundle
	options ImportOptions
	runtime *store.Store   // set by preflight
	missing []bundle.Image // images that containerd does not have, found by preflight
	keeper  *keeper
}

// NewImport returns an Import of the bundle's images. AcceptsBase must have accepted the base.
func NewImport(b *payload.Bundle, o ImportOptions, h *host.Host, c *workflow.Console) *Import {
	m := node.NewMachine(h, c)
	return &Import{Machine: m, bundle: b, options: o, keeper: &keeper{Machine: m, bundle: b, allNodes: o.AllNodes}}
}

// steps returns the steps of import in order.
func (i *Import) steps() []workflow.Step {
	return []workflow.Step{
		{Name: "preflight", Doc: "check this file and this node", Run: i.preflight},
		{Name: "images", Doc: "import the images", Run: i.importImages},
		{Name: "registry", Doc: "keep this file, and serve it to the nodes", Run: i.keeper.keep, Empty: !i.keeper.serves()},
		{Name: "nodes", Doc: "wait until every node has the images", Run: i.keeper.wait, Empty: !i.options.AllNodes},
	}
}

// Run runs all steps.
func (i *Import) Run(ctx context.Context) error { return workflow.Run(ctx, i.Console, i.steps(), nil) }

// Close closes the connection to containerd.
func (i *Import) Close() {
	if i.runtime != nil {
		_ = i.runtime.Close()
	}
}

// Imported returns the images that this run had to import, by reference.
func (i *Import) Imported() []string {
	refs := []string{}
	for _, img := range i.missing {
		refs = append(refs, img.Reference)
	}
	return refs
}

// preflight finds the images that are missing, and refuses what an import could not complete.
// It changes nothing.
func (i *Import) preflight(ctx context.Context) error {
	if err := i.keeper.check(ctx, i.options.Unpinned); err != nil {
		return err
	}
	var err error
	if i.runtime, err = i.NodeRuntime(ctx); err != nil {
		return err
	}
	if err := i.NeedsLedger(); err != nil {
		return err
	}
	if i.options.Unpinned {
		i.runtime.LeaveUnpinned()
	}
	if has := node.BinaryVersion(ctx, i.Host, "kubelet"); has != "" && !node.SameMinor(has, i.bundle.Manifest.KubernetesVersion) {
		i.Console.Warn("this node has Kubernetes %s, and this file was built for %s", has, i.bundle.Manifest.KubernetesVersion)
	}
	wanted := i.bundle.SiteImages()
	if others := len(i.bundle.Manifest.Images) - len(wanted); others > 0 {
		i.Console.Note("this file also has %s of Kubernetes, which init and join import", workflow.Count(others, "image"))
	}
	if i.missing, err = i.runtime.Missing(ctx, wanted); err != nil {
		return err
	}
	if err := i.warnOfReplaced(ctx); err != nil {
		return err
	}
	// The files are checked in the background, while the node is asked.
	if err := i.bundle.Checked(ctx, i.Console); err != nil {
		return err
	}
	if len(i.missing) > 0 || i.keeper.needsFile() {
		if err := i.bundle.AttachNode(ctx, i.Existing, i.Console); err != nil {
			return err
		}
	}
	if i.options.Base != nil {
		if err := i.options.Base.Checked(ctx, i.Console); err != nil {
			return err
		}
	}
	if err := i.checkLeftOut(ctx); err != nil {
		return err
	}
	return i.checkSpace(ctx)
}

// warnOfReplaced warns of images with a name that pods of the cluster itself use.
func (i *Import) warnOfReplaced(ctx context.Context) error {
	replaced, err := i.runtime.Replaced(ctx, i.missing)
	for _, img := range i.missing {
		if slices.Contains(replaced, img.Reference) || release.Reserved(img.Reference) {
			i.Console.Warn("this file has its own image %s: pods of the cluster that use this name will run it", img.Reference)
		}
	}
	return err
}

// checkLeftOut refuses to import an image without one of its layers.
func (i *Import) checkLeftOut(ctx context.Context) error {
	base := i.bundle.Manifest.Base
	if base == nil {
		return nil
	}
	leftOut, err := i.runtime.LeftOut(ctx, i.missing, base.Layers)
	if err != nil || len(leftOut) == 0 {
		return err
	}
	var list strings.Builder
	for _, l := range leftOut {
		fmt.Fprintf(&list, "\n  - image %s: layer %s, %s", l.Image, l.DiffID, progress.Bytes(l.Size))
	}
	if i.options.Base == nil {
		return fault.New(fault.Preflight, "this file leaves out layers that this node does not have:%s", &list).
			Hint("use the bundle that was the base of this file: " + i.bundle.Command("import --base FILE") + "; the sha256 of its manifest is " + base.ManifestSHA256)
	}
	for _, l := range leftOut {
		if _, ok := i.options.Base.Manifest.Entry(bundle.BlobName(l.DiffID)); !ok {
			return fault.New(fault.Bundle, "%s does not have all layers that this node needs:%s", i.options.Base.File.Path(), &list).
				Hint("first import the images of the file that " + i.options.Base.File.Path() + " has as its base, or build this file again without --base")
		}
	}
	i.Console.Note("%s from %s", workflow.Count(len(leftOut), "layer"), i.options.Base.File.Path())
	return nil
}

// checkSpace compares the free space with the size of the layers.
func (i *Import) checkSpace(ctx context.Context) error {
	info, err := i.runtime.Info(ctx)
	if err != nil {
		return err
	}
	report, err := preflight.CheckSpace(ctx, i.Host.Path("/"), phases.LayerSpace(cmp.Or(info.ImageDir, node.ContainerdDir), i.missing))
	for _, w := range report.Warnings {
		i.Console.Warn("%s: %s", w.Name, w.Message)
	}
	if len(report.Errors) > 0 {
		return fault.New(fault.Preflight, "%s", report.Errors[0].Message).Hint(report.Errors[0].Fix)
	}
	return err
}

// importImages reads the missing images from the file.
func (i *Import) importImages(ctx context.Context) error {
	present := len(i.bundle.SiteImages()) - len(i.missing)
	switch {
	case len(i.missing) > 0:
	case present == 0:
		i.Console.Summary("Nothing to do: this file has none of the site's own images.\n")
		return nil
	default:
		i.Console.Summary(fmt.Sprintf("Nothing to do: this node has all images of this file (%d).\n%s", present, i.next()))
		return nil
	}
	if err := i.stream(ctx); err != nil {
		return err
	}
	for _, img := range i.missing {
		i.Console.Note("%s", img.Reference)
	}
	also := ""
	if present > 0 {
		also = fmt.Sprintf("; %d already existed", present)
	}
	i.Console.Summary(fmt.Sprintf("%s imported%s.\n%s", workflow.Count(len(i.missing), "image"), also, i.next()))
	return nil
}

// stream runs the bundle stream to its end.
func (i *Import) stream(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, payload.ImageTimeout)
	b := i.bundle
	s := payload.NewBundleStream(b.File, b.Manifest, i.Host, func(string) bool { return false }, payload.ImageRequest{Wanted: i.missing, Base: i.base()}, payload.SiteRequest{})
	s.Start(ctx, b.Manifest)
	defer func() {
		stop()
		<-s.Done
	}()
	s.Images.Runtime <- i.runtime
	defer i.Console.Bytes("importing", &s.Moved, &s.Total)()
	return s.Finish(ctx)
}

// base returns what the importer reads from the file of --base.
func (i *Import) base() *payload.BaseLayers {
	if i.options.Base == nil {
		return nil
	}
	return &payload.BaseLayers{File: i.options.Base.File, Layers: i.bundle.Manifest.Base.Layers}
}

// next returns what the user does next.
func (i *Import) next() string {
	if i.keeper.serves() {
		return i.keeper.next()
	}
	if len(i.bundle.Manifest.Manifests) == 0 {
		return "Run the same command on every node whose pods use these images.\n"
	}
	return "Run the same command on every node. Then apply the manifests, on a control plane:\n\n    " + i.bundle.ApplyCommand() + "\n"
}
