package installer

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"airlift/bundle"
	"airlift/fault"
	"airlift/images"
	"airlift/images/store"
	"airlift/installer/host"
	"airlift/installer/preflight"
	"airlift/progress"
)

// ImportOptions are the user's options for import.
type ImportOptions struct {
	// Base is the file that has the layers that the bundle leaves out, or nil.
	Base *Bundle
	// Unpinned leaves the images to the kubelet's garbage collection.
	Unpinned bool
}

// An Import imports the site's own images of a bundle into the containerd of this node.
type Import struct {
	*machine
	bundle  *Bundle
	options ImportOptions
	runtime *store.Store   // set by preflight
	missing []bundle.Image // those that containerd does not have, found by preflight
}

// NewImport returns an Import of the bundle's images. AcceptsBase must have accepted the base.
func NewImport(b *Bundle, o ImportOptions, h *host.Host, c *Console) *Import {
	return &Import{machine: newMachine(h, c), bundle: b, options: o}
}

// AcceptsBase refuses a base that is not that of the bundle.
func (b *Bundle) AcceptsBase(base *Bundle) error {
	want := b.manifest.Base
	switch {
	case want == nil:
		return fault.New(fault.Usage, "remove --base", "--base %q has no effect: this file has all layers of its images", base.file.Path())
	case base.id() != want.ManifestSHA256:
		return fault.New(fault.Usage, "use the bundle that was the base of this file",
			"--base %q is another bundle: the sha256 of its manifest is %s, and this file needs %s", base.file.Path(), base.id(), want.ManifestSHA256)
	}
	return nil
}

// Steps returns the steps of import in order.
func (i *Import) Steps() []Step {
	return []Step{
		{Name: "preflight", Doc: "check this file and this node", Run: i.preflight},
		{Name: "images", Doc: "import the images", Run: i.importImages},
	}
}

// Run runs all steps.
func (i *Import) Run(ctx context.Context) error { return Run(ctx, i.console, i.Steps(), nil) }

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
	var err error
	if i.runtime, err = i.nodeRuntime(ctx); err != nil {
		return err
	}
	if err := i.needsLedger(); err != nil {
		return err
	}
	if i.options.Unpinned {
		i.runtime.LeaveUnpinned()
	}
	if has := i.kubeletVersion(ctx); has != "" && !sameMinor(has, i.bundle.manifest.KubernetesVersion) {
		i.console.Warn("this node has Kubernetes %s, and this file was built for %s", has, i.bundle.manifest.KubernetesVersion)
	}
	wanted := i.bundle.siteImages()
	if others := len(i.bundle.manifest.Images) - len(wanted); others > 0 {
		i.console.Note("this file also has %s of Kubernetes, which init and join import", count(others, "image"))
	}
	if i.missing, err = i.runtime.Missing(ctx, wanted); err != nil {
		return err
	}
	if err := i.warnOfReplaced(ctx); err != nil {
		return err
	}
	// The files are checked in the background, while the node is asked.
	if err := i.bundle.checked(ctx, i.console); err != nil {
		return err
	}
	if i.options.Base != nil {
		if err := i.options.Base.checked(ctx, i.console); err != nil {
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
		if slices.Contains(replaced, img.Reference) || images.Reserved(img.Reference) {
			i.console.Warn("this file has its own image %s: pods of the cluster that use this name will run it", img.Reference)
		}
	}
	return err
}

// checkLeftOut refuses to import an image without one of its layers.
func (i *Import) checkLeftOut(ctx context.Context) error {
	base := i.bundle.manifest.Base
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
		return fault.New(fault.Preflight, "use the bundle that was the base of this file: "+i.bundle.command("import --base FILE")+"; the sha256 of its manifest is "+base.ManifestSHA256,
			"this file leaves out layers that this node does not have:%s", &list)
	}
	for _, l := range leftOut {
		if _, ok := i.options.Base.manifest.Entry(bundle.BlobName(l.DiffID)); !ok {
			return fault.New(fault.Bundle, "first import the images of the file that "+i.options.Base.file.Path()+" has as its base, or build this file again without --base",
				"%s does not have all layers that this node needs:%s", i.options.Base.file.Path(), &list)
		}
	}
	i.console.Note("%s from %s", count(len(leftOut), "layer"), i.options.Base.file.Path())
	return nil
}

// checkSpace compares the free space with the size of the layers.
func (i *Import) checkSpace(ctx context.Context) error {
	info, err := i.runtime.Info(ctx)
	if err != nil {
		return err
	}
	report, err := preflight.CheckSpace(ctx, i.host.Path("/"), layerSpace(cmp.Or(info.ImageDir, containerdDir), i.missing))
	for _, w := range report.Warnings {
		i.console.Warn("%s: %s", w.Name, w.Message)
	}
	if len(report.Errors) > 0 {
		return fault.New(fault.Preflight, report.Errors[0].Fix, "%s", report.Errors[0].Message)
	}
	return err
}

// importImages reads the missing images from the file.
func (i *Import) importImages(ctx context.Context) error {
	present := len(i.bundle.siteImages()) - len(i.missing)
	switch {
	case len(i.missing) > 0:
	case present == 0:
		i.console.Summary("Nothing to do: this file has none of the site's own images.\n")
		return nil
	default:
		i.console.Summary(fmt.Sprintf("Nothing to do: this node has all images of this file (%d).\n%s", present, i.next()))
		return nil
	}
	if err := i.stream(ctx); err != nil {
		return err
	}
	for _, img := range i.missing {
		i.console.Note("%s", img.Reference)
	}
	also := ""
	if present > 0 {
		also = fmt.Sprintf("; %d already existed", present)
	}
	i.console.Summary(fmt.Sprintf("%s imported%s.\n%s", count(len(i.missing), "image"), also, i.next()))
	return nil
}

// stream runs the bundle stream to its end.
func (i *Import) stream(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, imageTimeout)
	b := i.bundle
	s := newBundleStream(b.file, b.manifest, i.host, func(string) bool { return false }, imageRequest{wanted: i.missing, base: i.base()}, siteRequest{})
	s.start(ctx, b.manifest)
	defer func() {
		stop()
		<-s.done
	}()
	s.images.runtime <- i.runtime
	defer i.console.Bytes("importing", &s.moved, &s.total)()
	return s.finish(ctx)
}

// base returns what the importer reads from the file of --base.
func (i *Import) base() *baseLayers {
	if i.options.Base == nil {
		return nil
	}
	return &baseLayers{i.options.Base.file, i.bundle.manifest.Base.Layers}
}

// next returns what the user does next.
func (i *Import) next() string {
	if len(i.bundle.manifest.Manifests) == 0 {
		return "Run the same command on every node whose pods use these images.\n"
	}
	return "Run the same command on every node. Then apply the manifests, on a control plane:\n\n    " + i.bundle.applyCommand() + "\n"
}

// count returns a number with a noun: "1 image", "2 images".
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
