package builder

import (
	"context"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"airlift/bundle/events"
	"airlift/bundle/fetch"
)

// download puts everything that was resolved into the cache.
func (b *builder) download(ctx context.Context) error {
	if err := b.checkRoom(ctx); err != nil {
		return err
	}
	var missing shortage
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for _, bin := range b.binaries {
		if !bin.dropped {
			g.Go(func() error { return missing.note(bin, b.getBinary(gctx, bin)) })
		}
	}
	claimed := map[string]bool{} // blobs of layers, by digest, that are downloaded for an earlier image
	var err error
	for _, img := range b.images {
		if err = b.getLayers(gctx, g, img, claimed); err != nil {
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
	if err := b.report(&missing); err != nil {
		return err
	}
	// A shared layer was pulled for one of its images. The others need its size.
	for _, img := range b.images {
		for n := range img.compressed() {
			if err := b.registry.Pull(ctx, img.registry, n, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// getLayers starts the downloads of the image's layers that are neither in the base nor cached nor
// downloaded for an earlier image. The last download prints the image's line.
func (b *builder) getLayers(ctx context.Context, g *errgroup.Group, img *image, claimed map[string]bool) error {
	if img.registry == nil {
		return nil // in the cache
	}
	var todo []int
	var size, cached int64
	from, state := events.Base, "all layers are in the base"
	for n, layer := range img.compressed() {
		if _, ok := b.base.layers[layer.DiffID]; ok {
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
			item.started()
			if err := b.registry.Pull(ctx, img.registry, n, item); err != nil {
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

// getBinary puts one published file, or its wanted contents, into the cache.
func (b *builder) getBinary(ctx context.Context, bin *binary) error {
	if bin.entries != nil {
		b.present(events.Component, label(bin), b.site(bin.URL), events.Cache, total(bin.entries), "sha256:"+bin.sum, "in the cache")
		return nil
	}
	item := b.transfer(events.Component, label(bin), b.site(bin.URL), 0)
	d := fetch.Download{Name: label(bin), URL: bin.URL, SHA256: bin.sum, Vouched: "published at " + bin.source.URL, Meter: item}
	if bin.pinned {
		d.Vouched = "pinned by --checksum"
	} else if bin.locked {
		d.Vouched = "pinned by " + b.LockPath
	}
	var err error
	if bin.entries, err = b.fetchEntries(ctx, d, bin.Contents); err != nil {
		item.Failed()
		return err
	}
	item.Done("sha256:"+bin.sum, "downloaded, sha256 verified")
	return b.remember(bin)
}
