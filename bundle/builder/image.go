package builder

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"airlift/bundle"
	"airlift/bundle/events"
	"airlift/fault"
	"airlift/images"
	"airlift/images/local"
	"airlift/images/registry"
)

// An image is a resolved image. Exactly one of registry and local is not nil.
type image struct {
	*bundle.Image
	registry *registry.Image
	local    *local.Image
	pinned   bool // the user required its digest
	locked   bool // the lock has its digest
	signed   signed
}

// parseImages separates the user's images: those in registries stay in b.Images.
func (b *builder) parseImages() error {
	var names []string
	for _, s := range b.Images {
		spec, ok, err := local.Parse(s)
		if err != nil {
			return err
		}
		if ok {
			if err := spec.Check(); err != nil {
				return err
			}
			b.local = append(b.local, spec)
			continue
		}
		// docker:// is skopeo's name for registries.
		name, err := images.Normalize(strings.TrimPrefix(s, "docker://"))
		if err != nil {
			return err
		}
		names = append(names, name)
	}
	b.Images = names
	return nil
}

// readLocal puts the images of local sources into the cache. It returns them by reference
// and adds their references to b.Images.
func (b *builder) readLocal(ctx context.Context) (map[string]*local.Image, error) {
	found := map[string]*local.Image{}
	r := local.Reader{Cache: b.cache, Arch: b.Arch, Namespace: b.Namespace, Keep: b.KeepCompressed}
	for _, spec := range b.local {
		item := b.Progress.Item(spec.String(), 0)
		list, err := r.Read(ctx, spec)
		if err != nil {
			item.Failed()
			return nil, err
		}
		var names []string
		for _, img := range list {
			names = append(names, img.Reference)
			if old := found[img.Reference]; old != nil && old.Target == img.Target {
				continue
			}
			if found[img.Reference] != nil || slices.Contains(b.Images, img.Reference) {
				item.Failed()
				return nil, fault.New(fault.Usage, "name each image once; =NAME gives an image another name: --image "+spec.String()+"=registry.example/app:1",
					"%s: the image %s is also in another --image", spec, img.Reference)
			}
			found[img.Reference] = img
			b.Images = append(b.Images, img.Reference)
		}
		item.Done(fmt.Sprintf("%s: read, digests verified", strings.Join(names, ", ")))
		for _, img := range list {
			b.Events.DownloadFinished(events.DownloadFinished{Kind: events.Image, Name: img.Reference, Source: img.Kind,
				From: events.Local, Size: layersSize(img.Layers), Digest: img.Target.Digest})
		}
	}
	return found, nil
}

func layersSize(layers []bundle.Layer) (n int64) {
	for _, l := range layers {
		n += l.Size
	}
	return n
}

// takeLocal returns the image of a local source for i.
func takeLocal(l *local.Image, i images.Image, digest string) (*image, error) {
	if digest != "" && digest != l.Target.Digest {
		return nil, fault.New(fault.Failure, "use the image with the pinned digest, or remove the --checksum", "the %s image %s has digest %s, but --checksum requires %s", l.Kind, i.Reference, l.Target.Digest, digest)
	}
	l.Name = i.Name
	return &image{Image: &l.Image, local: l, pinned: digest != ""}, nil
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
