package builder

import (
	"context"
	"path/filepath"

	"airlift/images/registry"
	"airlift/internal/space"
)

// checkRoom compares the free space of cache and output with what the build will
// write, as far as its size is known before the downloads.
func checkRoom(cacheDir, output string, downloads, estimate int64) error {
	if space.Shared(cacheDir, filepath.Dir(output)) {
		return space.Check(cacheDir, "the downloads and the bundle (estimated)", downloads+estimate)
	}
	if err := space.Check(cacheDir, "the downloads (estimated)", downloads); err != nil {
		return err
	}
	return checkOutputRoom(output, estimate)
}

// checkOutputRoom checks again when everything is in the cache and the estimate is
// better.
func checkOutputRoom(output string, estimate int64) error {
	return space.Check(filepath.Dir(output), "the bundle (estimated)", estimate)
}

// toDownload is the minimum size of the missing layers in the cache. The cache keeps
// them uncompressed, so they take more.
func (inv *inventory) toDownload(ctx context.Context, r *registry.Client) (n int64, err error) {
	err = inv.eachLayer(func(l registry.Layer) error {
		_, have, err := r.Cached(ctx, l)
		if !have {
			n += l.Size
		}
		return err
	})
	return n, err
}

// size is the approximate disk space of the executables in the bundle, in bytes. Only the installer is compressed.
func (d Destination) size() int64 {
	return int64(len(d.Executables.Launcher) + len(d.Executables.Installer)/5)
}

// estimate is the approximate disk space, in bytes, for writing the bundle without its executables. Layers take about half
// of their size in a registry, and are on the disk twice until the bundle is complete. Binaries and
// the site's own files take a fifth of their size.
func (inv *inventory) estimate() (n int64) {
	_ = inv.eachLayer(func(l registry.Layer) error {
		n += l.Size
		return nil
	})
	for _, img := range inv.images {
		for _, l := range img.Layers {
			if img.local != nil && !inv.base.has(l.DiffID) {
				n += l.Size / 5
			}
		}
	}
	for _, bin := range inv.components.binaries {
		n += total(bin.entries) / 5
	}
	return n + inv.content.size()/5
}

// eachLayer calls do for each layer of the bundle that comes from a registry.
func (inv *inventory) eachLayer(do func(registry.Layer) error) error {
	seen := map[string]bool{}
	for _, img := range inv.images {
		for _, l := range img.compressed() {
			if inv.base.has(l.DiffID) || seen[l.DiffID] {
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
