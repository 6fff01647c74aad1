package payload

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"airlift/bundle"
	"airlift/images/store"
	"airlift/installer/timeline"
	"airlift/internal/fault"
)

// lazyImporter imports images from the stream into containerd. The stream
// starts before containerd, because it also installs containerd. The importer
// opens when the runtime step passes it a running containerd.
type lazyImporter struct {
	ImageRequest
	arrivals *arrivals
	timeline *imageTimeline
	Runtime  chan *store.Store // receives containerd once, when it runs
	store    *store.Store
	importer *store.Importer // nil before open, and if no image is missing
	opened   bool
}

// An ImageRequest describes the images that a host needs.
type ImageRequest struct {
	Wanted  []bundle.Image
	Aliases map[string]string // additional image names, by reference
	Never   bool              // imagePullPolicy is Never: do not import missing images
	Base    *BaseLayers       // nil unless the bundle leaves out layers
}

// BaseLayers are layers that a bundle leaves out, and the file that has them.
type BaseLayers struct {
	File   *bundle.File
	Layers []string // diffIDs
}

func newLazyImporter(r ImageRequest, a *arrivals) *lazyImporter {
	for _, i := range r.Wanted {
		a.expect(i.Reference)
	}
	return &lazyImporter{ImageRequest: r, arrivals: a, timeline: newImageTimeline(r.Wanted), Runtime: make(chan *store.Store, 1)}
}

// open waits for containerd and asks it which images are missing.
func (im *lazyImporter) open(ctx context.Context) error {
	if im.opened {
		return nil
	}
	if len(im.Wanted) == 0 {
		im.opened = true
		return nil
	}
	if err := im.meet(ctx); err != nil {
		return err
	}
	missing, err := im.store.Missing(ctx, im.Wanted)
	if err != nil {
		return err
	}
	lacks := map[string]bool{}
	for _, i := range missing {
		lacks[i.Reference] = true
		for _, l := range i.Layers {
			im.arrivals.Total.Add(l.Size)
		}
	}
	for _, i := range im.Wanted {
		if lacks[i.Reference] {
			continue
		}
		if err := im.announce(ctx, i.Reference); err != nil {
			return err
		}
	}
	im.opened = true
	if len(missing) == 0 {
		return nil
	}
	if im.Never {
		var names []string
		for _, i := range missing {
			names = append(names, i.Reference)
		}
		return fault.New(fault.Preflight, "imagePullPolicy is Never, and the container runtime does not have %s", strings.Join(names, ", ")).
			Hint("remove imagePullPolicy, so that the images are imported from the bundle")
	}
	im.importer, err = im.store.NewImporter(ctx, missing, store.ImportOptions{
		OnImage: func(ctx context.Context, i bundle.Image) error {
			im.arrivals.Changed.Add(1)
			return im.announce(ctx, i.Reference)
		},
	})
	if err != nil || im.Base == nil {
		return err
	}
	return im.readBase(ctx)
}

// readBase reads the layers that the importer needs from the base. Upper layers may come before
// lower layers, which the bundle has. The importer keeps the upper layers until then.
//
// The bundle lists only the sha256 of the base's manifest, so a file with this manifest may have
// other contents, with digests of its own. The importer compares each layer of a plain reader with
// the digest in the bundle.
func (im *lazyImporter) readBase(ctx context.Context) error {
	defer sparingMemory()()
	wanted := map[string]bool{}
	for _, diffID := range im.Base.Layers {
		wanted[bundle.BlobName(diffID)] = im.wants(bundle.BlobName(diffID))
	}
	return im.Base.File.Each(ctx, func(e bundle.Entry) bool { return wanted[e.Name] }, func(e bundle.Entry, content bundle.Content) error {
		plain := struct{ io.Reader }{counted{content, &im.arrivals.Moved}}
		if err := im.blob(ctx, e, plain); err != nil {
			return fmt.Errorf("reading layers of the base %s: %w", im.Base.File.Path(), err)
		}
		return nil
	})
}

// meet waits for containerd.
func (im *lazyImporter) meet(ctx context.Context) error {
	defer timeline.Wait(ctx, "containerd").End()
	select {
	case im.store = <-im.Runtime:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// announce gives an image its alias, and then ends the waits for the image.
func (im *lazyImporter) announce(ctx context.Context, reference string) error {
	if alias := im.Aliases[reference]; alias != "" {
		if err := im.store.Tag(ctx, reference, alias); err != nil {
			return err
		}
	}
	im.timeline.usable(reference)
	im.arrivals.announce(reference)
	return nil
}

// complete reports whether the importer needs nothing more from the stream.
func (im *lazyImporter) complete() bool {
	return im.opened && (im.importer == nil || im.importer.Done())
}

// finish waits until pods can use all images.
func (im *lazyImporter) finish(ctx context.Context) error {
	if im.importer == nil {
		return nil
	}
	incomplete, err := im.importer.Finish(ctx)
	if err == nil && len(incomplete) > 0 {
		err = fmt.Errorf("importing images: the bundle ended without all of %s", incomplete[0].Reference)
	}
	return err
}

func (im *lazyImporter) wants(entry string) bool {
	return im.importer != nil && im.importer.Wants(entry)
}

func (im *lazyImporter) blob(ctx context.Context, e bundle.Entry, r io.Reader) error {
	im.timeline.comes(ctx, e.Name)
	ctx, span := timeline.Start(ctx, timeline.Bundle, im.timeline.name(e.Name))
	defer span.End()
	span.Set("bytes", e.Size)
	return im.importer.Blob(ctx, e, r)
}

func (im *lazyImporter) close(ctx context.Context) {
	if im.importer != nil {
		_ = im.importer.Close(ctx) // containerd removes incomplete content when the lease ends
	}
}

// ImageTimeout limits the wait for the images. A USB 2 drive reads a bundle in a
// few seconds. A slow disk writes 0.5 to 1 GB of images in a few minutes.
const ImageTimeout = 30 * time.Minute
