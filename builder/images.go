package builder

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"airlift/builder/events"
	"airlift/builder/fetch"
	"airlift/builder/local"
	"airlift/builder/registry"
	"airlift/bundle"
	"airlift/images/release"
	"airlift/internal/fault"
)

// An image is an image that the bundle will have. It has only a name until it is resolved, and then
// either local or registry.
type image struct {
	*bundle.Image
	fixed    bool         // of the catalog
	local    *local.Image // nil if it is in a registry
	others   string       // digests of local images of the same repository, if local is nil and the reference has a digest
	digest   string       // that it must have; empty if its registry resolves the reference
	locked   bool         // digest is from the lock
	registry *registry.Image
	signed   signed
}

// compressed lists the layers that have to be downloaded, with their sizes.
func (i *image) compressed() []registry.Layer {
	if i.registry == nil {
		return nil
	}
	return i.registry.Compressed()
}

// site is where the image comes from.
func (i *image) site() string {
	if i.registry == nil {
		return i.local.Kind
	}
	return i.registry.Site
}

// vouchedBy returns who supplied the digest.
func (i *image) vouchedBy() string {
	switch {
	case i.local != nil && i.digest == "":
		return byLocal
	case i.local != nil:
		return byPin
	case i.locked:
		return byLock
	case i.registry.Source.Site != "":
		return byRegistry
	case strings.Contains(i.Reference, "@"):
		return byReference
	}
	return byPin
}

// parseImages separates the user's images into references to registries, and local sources.
func (b *build) parseImages() error {
	for _, s := range b.Images {
		spec, ok, err := local.Parse(s)
		if err != nil {
			return err
		}
		if ok {
			if err := spec.Check(); err != nil {
				return err
			}
			b.sources = append(b.sources, spec)
			continue
		}
		// docker:// is skopeo's name for registries.
		name, err := release.Normalize(strings.TrimPrefix(s, "docker://"))
		if err != nil {
			return err
		}
		b.named = append(b.named, name)
	}
	return nil
}

// readLocal puts the images of local sources into the cache. It returns them by reference, and adds
// their references to the named ones.
func (b *build) readLocal(ctx context.Context) (map[string]*local.Image, error) {
	reader := local.Reader{Cache: b.cache, Arch: b.Arch, Namespace: b.Namespace, Keep: b.KeepCompressed}
	found := map[string]*local.Image{}
	for _, spec := range b.sources {
		item := b.Report.Work(spec.String(), 0)
		list, err := reader.Read(ctx, spec)
		if err == nil {
			err = b.takeLocal(spec, list, found)
		}
		if err != nil {
			item.Failed()
			return nil, err
		}
		var names []string
		var contents []events.DownloadFinished
		for _, img := range list {
			names = append(names, img.Reference)
			size := int64(0)
			for _, l := range img.Layers {
				size += l.Size
			}
			contents = append(contents, events.DownloadFinished{Kind: events.Image, Name: img.Reference, Source: img.Kind,
				From: events.Local, Size: size, Digest: img.Target.Digest})
		}
		item.Done(fmt.Sprintf("%s: read, digests verified", strings.Join(names, ", ")), contents...)
	}
	return found, nil
}

// takeLocal adds the images of a source to found.
func (b *build) takeLocal(spec local.Spec, list []*local.Image, found map[string]*local.Image) error {
	for _, img := range list {
		given := func(s local.Spec) bool { return s.Named && s.Reference == img.Reference } // the user wrote =NAME
		if release.Reserved(img.Reference) && !slices.ContainsFunc(b.sources, given) {
			one := spec
			if spec.Path != "" {
				one.Select = img.Reference
			}
			return fault.New(fault.Usage, "%s: the image %s has a name of Kubernetes' own images, and would replace it", spec, img.Reference).
				Hint(fmt.Sprintf("to replace it, add --image %s=%s; otherwise select the images that you need by their names", one, img.Reference))
		}
		if old := found[img.Reference]; old != nil && old.Target == img.Target {
			continue
		}
		if found[img.Reference] != nil || slices.Contains(b.named, img.Reference) {
			return fault.New(fault.Usage, "%s: the image %s is also in another --image", spec, img.Reference).
				Hint("name each image once; =NAME gives an image another name: --image " + spec.String() + "=registry.example/app:1")
		}
		found[img.Reference] = img
		b.named = append(b.named, img.Reference)
	}
	return nil
}

// listImages lists the catalog's images, followed by the user's images. found are the images of local
// sources.
func (b *build) listImages(found map[string]*local.Image) {
	known := map[string]bool{}
	add := func(name, reference string, fixed bool) {
		known[reference] = true
		i := &image{Image: &bundle.Image{Name: name, Reference: reference}, fixed: fixed, local: localImage(found, reference)}
		if i.local == nil && strings.Contains(reference, "@") {
			var others []string
			for _, other := range slices.Sorted(maps.Keys(found)) {
				if release.Repository(other) == release.Repository(reference) {
					others = append(others, other+" with the digest "+found[other].Target.Digest)
				}
			}
			i.others = strings.Join(others, ", ")
		}
		b.images = append(b.images, i)
	}
	for _, i := range b.release.Images {
		add(i.Name, i.Reference, true)
	}
	for _, ref := range b.named {
		if !known[ref] {
			add(ref, ref, false)
		}
	}
}

// localImage returns the image of a local source with this reference. A reference with a digest,
// for example in a pod, may match an image that its source has under a tag.
func localImage(found map[string]*local.Image, reference string) *local.Image {
	if img := found[reference]; img != nil {
		return img
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if img, ok := found[name].As(reference); ok {
			return img
		}
	}
	return nil
}

// request requests the checksums and digests that are not known yet.
func (b *build) request(ctx context.Context) error {
	var missing shortage
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for _, bin := range b.binaries {
		g.Go(func() error { return missing.note(bin.label(), bin, b.resolveBinary(ctx, bin)) })
	}
	for _, i := range b.images {
		g.Go(func() error { return missing.note(i.Reference, nil, b.resolveImage(ctx, i)) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return b.settle(&missing)
}

// resolveImage finds the digest of an image: from a local source, or else from its registry.
func (b *build) resolveImage(ctx context.Context, i *image) error {
	if l := i.local; l != nil {
		if i.digest != "" && i.digest != l.Target.Digest {
			return fault.New(fault.Failure, "the %s image %s has digest %s, but --checksum requires %s", l.Kind, i.Reference, l.Target.Digest, i.digest).Hint("use the image with the pinned digest, or remove the --checksum")
		}
		l.Name = i.Name
		i.Image = &l.Image
		return nil
	}
	found, err := b.registry.Resolve(ctx, registry.Wanted{Name: i.Name, Reference: i.Reference, Digest: i.digest, Fixed: i.fixed})
	if err != nil && i.others != "" {
		// An archive without a manifest does not have the digest of the registry.
		why := "the local sources have " + i.others
		if m := (*fetch.MissingError)(nil); errors.As(err, &m) {
			return &fetch.MissingError{URL: m.URL, Why: cmp.Or(m.Why, "does not exist") + "; " + why}
		}
		return fmt.Errorf("%w; %s", err, why)
	}
	if err == nil {
		i.Image, i.registry = &found.Image, found
	}
	return err
}

// getImage starts the downloads of the image's layers that are neither in the base nor cached nor
// claimed: downloaded for an earlier image. The last download prints the image's line.
func (b *build) getImage(ctx context.Context, g *errgroup.Group, img *image, claimed map[string]bool) error {
	if img.registry == nil {
		return nil // in the cache
	}
	var todo []int
	var size, cached int64
	from, state := events.Base, "all layers are in the base"
	if len(img.Layers) == 0 {
		from, state = events.Cache, "the image has no layers"
	}
	for n, layer := range img.compressed() {
		if b.base.has(layer.DiffID) {
			continue
		}
		from, state = events.Cache, "in the cache"
		have, ok, err := b.registry.Cached(ctx, layer)
		if err != nil {
			return err
		}
		cached += have
		if !ok && !claimed[layer.Digest] {
			claimed[layer.Digest] = true
			todo = append(todo, n)
			size += layer.Size
		}
	}
	if len(todo) == 0 {
		b.present(events.Image, img.Reference, img.site(), from, cached, img.Target.Digest, state)
		return nil
	}
	item := b.transfer(events.Image, img.Reference, img.site(), size)
	left := new(atomic.Int64)
	left.Store(int64(len(todo)))
	for _, n := range todo {
		g.Go(func() error {
			item.Started()
			if err := b.registry.Pull(ctx, img.registry, n, item); err != nil {
				item.Failed()
				return err
			}
			if left.Add(-1) == 0 {
				item.Downloaded(img.Target.Digest, "pulled, digests verified")
			}
			return nil
		})
	}
	return nil
}
