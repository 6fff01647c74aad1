package build

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"airlift/images"
	"airlift/images/registry"
)

// parallel is how many requests and downloads run at once: enough to keep a
// connection busy, few enough for sites to like.
const parallel = 4

// A binary is a published file on its way into the bundle.
type binary struct {
	images.Binary
	sum     string  // the published sha256 of the file
	pieces  []piece // what of it goes into the bundle; nil until the cache has it
	dropped bool    // optional, and not to be had
}

// resolve learns the checksums of all binaries and the digests of all images.
func (b *builder) resolve(ctx context.Context) error {
	full, err := b.newest(ctx)
	if err != nil {
		return err
	}
	if b.catalog, err = images.For(full, b.Arch, b.CNI); err != nil {
		return err
	}
	wanted := b.wanted()
	b.Progress.Printf("Kubernetes %s for linux/%s, pod network %s: %d programs, %d images\n",
		b.catalog.Version, b.Arch, b.CNI, len(b.catalog.Binaries), len(wanted))

	var missing shortage
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for _, c := range b.catalog.Binaries {
		bin := &binary{Binary: c}
		b.binaries = append(b.binaries, bin)
		g.Go(func() error { return missing.note(bin, b.resolveBinary(ctx, bin)) })
	}
	b.images = make([]*registry.Image, len(wanted))
	for n, i := range wanted {
		g.Go(func() (err error) {
			b.images[n], err = b.registry.Resolve(ctx, i.Name, i.Reference, n < len(b.catalog.Images))
			return missing.note(i, err)
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return b.report(&missing)
}

// resolveBinary learns a binary's checksum: from the cache if that has all of
// it, for releases do not change, or else from its site.
func (b *builder) resolveBinary(ctx context.Context, bin *binary) error {
	known, err := b.recall(ctx, bin)
	if err != nil {
		return err
	}
	bin.sum = known.SHA256
	if bin.sum == "" || b.Refresh {
		if bin.sum, err = b.fetch.Checksum(ctx, bin.ChecksumURL, bin.URL); err != nil {
			return fmt.Errorf("finding the checksum of %s: %w", label(bin), err)
		}
	}
	if bin.sum == known.SHA256 {
		bin.pieces = known.Pieces
	}
	return nil
}

// wanted lists the catalog's images and, after them, the user's own.
func (b *builder) wanted() []images.Image {
	list := slices.Clone(b.catalog.Images)
	for _, ref := range b.Images {
		if !slices.ContainsFunc(list, func(i images.Image) bool { return i.Reference == ref }) {
			list = append(list, images.Image{Name: ref, Reference: ref})
		}
	}
	return list
}

// label is how messages call a binary.
func label(bin *binary) string { return bin.Name + " " + bin.Version }
