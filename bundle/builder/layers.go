package builder

import (
	"context"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"airlift/bundle/builder/events"
	"airlift/images/registry"
)

// A layerFetcher puts the layers of images in registries into the cache.
type layerFetcher struct {
	registry *registry.Client
	base     base
	report   *reporter
	claimed  map[string]bool // blobs of layers, by digest, that are downloaded for an earlier image
}

// get starts the downloads of the image's layers that are neither in the base nor cached nor
// downloaded for an earlier image. The last download prints the image's line.
func (f layerFetcher) get(ctx context.Context, g *errgroup.Group, img *image) error {
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
		if f.base.has(layer.DiffID) {
			continue
		}
		from, state = events.Cache, "in the cache"
		have, ok, err := f.registry.Cached(ctx, layer)
		if err != nil {
			return err
		}
		cached += have
		if !ok && !f.claimed[layer.Digest] {
			f.claimed[layer.Digest] = true
			todo = append(todo, n)
			size += layer.Size
		}
	}
	if len(todo) == 0 {
		f.report.present(events.Image, img.Reference, img.site(), from, cached, img.Target.Digest, state)
		return nil
	}
	item := f.report.transfer(events.Image, img.Reference, img.site(), size)
	left := new(atomic.Int64)
	left.Store(int64(len(todo)))
	for _, n := range todo {
		g.Go(func() error {
			item.Started()
			if err := f.registry.Pull(ctx, img.registry, n, item); err != nil {
				item.Failed()
				return err
			}
			if left.Add(-1) == 0 {
				item.Done(img.Target.Digest, "pulled, digests verified")
			}
			return nil
		})
	}
	return nil
}

// finish sets the sizes of layers that were pulled for another image that shares them.
func (f layerFetcher) finish(ctx context.Context, list []*image) error {
	for _, img := range list {
		for n := range img.compressed() {
			if err := f.registry.Pull(ctx, img.registry, n, nil); err != nil {
				return err
			}
		}
	}
	return nil
}
