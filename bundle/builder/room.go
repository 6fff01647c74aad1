package builder

import (
	"context"
	"path/filepath"

	"airlift/bundle/space"
	"airlift/images/registry"
)

// checkRoom compares the free space of cache and output with what the build will
// write, as far as its size is known before the downloads.
func (b *builder) checkRoom(ctx context.Context) error {
	downloads, err := b.toDownload(ctx)
	if err != nil {
		return err
	}
	out := filepath.Dir(b.Output)
	if space.Shared(b.CacheDir, out) {
		return space.Check(b.CacheDir, "the downloads and the bundle (estimated)", downloads+b.estimate())
	}
	if err := space.Check(b.CacheDir, "the downloads (estimated)", downloads); err != nil {
		return err
	}
	return b.checkOutputRoom()
}

// checkOutputRoom checks again when everything is in the cache and the estimate is
// better.
func (b *builder) checkOutputRoom() error {
	return space.Check(filepath.Dir(b.Output), "the bundle (estimated)", b.estimate())
}

// toDownload is the minimum size of the missing layers in the cache. The cache keeps
// them uncompressed, so they take more.
func (b *builder) toDownload(ctx context.Context) (n int64, err error) {
	err = b.eachLayer(func(l registry.Layer) error {
		_, have, err := b.registry.Cached(ctx, l)
		if !have {
			n += l.Size
		}
		return err
	})
	return n, err
}

// estimate is about the size of the bundle while it is written. Layers take about
// half of their size in a registry, and are on the disk twice until the bundle is
// complete. Binaries and the site's own files take a fifth of their size.
func (b *builder) estimate() (n int64) {
	_ = b.eachLayer(func(l registry.Layer) error {
		n += l.Size
		return nil
	})
	for _, img := range b.images {
		for _, l := range img.Layers {
			if _, ok := b.base.layers[l.DiffID]; img.local != nil && !ok {
				n += l.Size / 5
			}
		}
	}
	for _, bin := range b.binaries {
		n += total(bin.entries) / 5
	}
	return n + b.content.size()/5
}

// eachLayer calls do for each layer of the bundle that comes from a registry.
func (b *builder) eachLayer(do func(registry.Layer) error) error {
	seen := map[string]bool{}
	for _, img := range b.images {
		for _, l := range img.compressed() {
			if _, ok := b.base.layers[l.DiffID]; ok || seen[l.DiffID] {
				continue
			}
			seen[l.DiffID] = true
			if err := do(l); err != nil {
				return err
			}
		}
	}
	return nil
}
