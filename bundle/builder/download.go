package builder

import (
	"context"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"airlift/bundle/fetch"
	"airlift/progress"
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
	claimed := map[string]bool{} // layers, by diffID, that are downloaded for an earlier image
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
	state := "all layers are in the base"
	for n, layer := range img.compressed() {
		if _, ok := b.base.layers[layer.DiffID]; ok {
			continue
		}
		state = "in the cache"
		have, ok, err := b.registry.Cached(ctx, layer.DiffID)
		if err != nil {
			return err
		}
		cached += have
		if !ok && !claimed[layer.DiffID] {
			claimed[layer.DiffID] = true
			todo = append(todo, n)
			size += layer.Size
		}
	}
	if len(todo) == 0 {
		b.Progress.Item(img.Reference, cached).Done(state)
		return nil
	}
	item := b.Progress.Item(img.Reference, size)
	left := new(atomic.Int64)
	left.Store(int64(len(todo)))
	for _, n := range todo {
		g.Go(func() error {
			if err := b.registry.Pull(ctx, img.registry, n, meter{item, &b.fetched, true}); err != nil {
				item.Failed()
				return err
			}
			if left.Add(-1) == 0 {
				item.Done("pulled, digests verified")
			}
			return nil
		})
	}
	return nil
}

// getBinary puts one published file, or its wanted contents, into the cache.
func (b *builder) getBinary(ctx context.Context, bin *binary) error {
	item := b.Progress.Item(label(bin), total(bin.entries))
	if bin.entries != nil {
		item.Done("in the cache")
		return nil
	}
	d := fetch.Download{Name: label(bin), URL: bin.URL, SHA256: bin.sum, Vouched: "published at " + bin.source.URL, Meter: meter{item, &b.fetched, false}}
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
	item.Done("downloaded, sha256 verified")
	return b.remember(bin)
}

// A meter adds a download to its progress item and to the total. For a layer, the
// item is the whole image, whose size is known before.
type meter struct {
	item  *progress.Item
	sum   *atomic.Int64
	known bool
}

func (m meter) SetTotal(n int64) {
	if !m.known {
		m.item.SetTotal(n)
	}
}

func (m meter) Add(n int64) {
	m.sum.Add(n)
	m.item.Add(n)
}
