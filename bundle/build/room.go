package build

import (
	"context"
	"path/filepath"

	"airlift/bundle/space"
)

// checkRoom compares what will be written to cache and output with what is free
// there, as far as that is known before anything is downloaded.
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

// checkOutputRoom is asked again when everything is in the cache and the estimate
// is a better one.
func (b *builder) checkOutputRoom() error {
	return space.Check(filepath.Dir(b.Output), "the bundle (estimated)", b.estimate())
}

// toDownload is the least that the layers to download take in the cache. They are
// kept uncompressed, and take more.
func (b *builder) toDownload(ctx context.Context) (n int64, err error) {
	err = b.eachLayer(func(diffID string, compressed int64) error {
		_, have, err := b.registry.Cached(ctx, diffID)
		if !have {
			n += compressed
		}
		return err
	})
	return n, err
}

// estimate is about what the bundle takes while it is written. Layers get to about
// half of what they have in a registry, and are on the disk twice until the bundle
// is complete; binaries get to a fifth.
func (b *builder) estimate() (n int64) {
	_ = b.eachLayer(func(_ string, compressed int64) error {
		n += compressed
		return nil
	})
	for _, bin := range b.binaries {
		n += total(bin.pieces) / 5
	}
	return n
}

func (b *builder) eachLayer(do func(diffID string, compressed int64) error) error {
	seen := map[string]bool{}
	for _, img := range b.images {
		for _, l := range img.Compressed() {
			if seen[l.DiffID] {
				continue
			}
			seen[l.DiffID] = true
			if err := do(l.DiffID, l.Size); err != nil {
				return err
			}
		}
	}
	return nil
}
