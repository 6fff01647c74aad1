package builder

import (
	"context"

	"golang.org/x/sync/errgroup"
)

// download puts everything that was resolved into the cache.
func (b *build) download(ctx context.Context) error {
	found := &b.found
	size, err := found.toDownload(ctx, b.sites.registry)
	if err != nil {
		return err
	}
	if err := checkRoom(b.CacheDir, b.Output, size, found.estimate()); err != nil {
		return err
	}
	var missing shortage
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	binaries := b.binaries()
	for _, bin := range found.components.binaries {
		g.Go(func() error { return missing.note(bin, binaries.get(gctx, bin)) })
	}
	layers := layerFetcher{registry: b.sites.registry, base: found.base, report: b.report, claimed: map[string]bool{}}
	for _, img := range found.images {
		if err = layers.get(gctx, g, img); err != nil {
			break
		}
	}
	// The first error cancels the context of the others, so it is the cause.
	if werr := g.Wait(); werr != nil {
		err = werr
	}
	if err != nil {
		return err
	}
	if err := b.settle(&missing); err != nil {
		return err
	}
	return layers.finish(ctx, found.images)
}
