package build

import (
	"context"
	"fmt"
	"net/url"
	"slices"

	"golang.org/x/sync/errgroup"

	"airlift/bundle/fetch"
	"airlift/images"
	"airlift/images/registry"
)

// parallel is how many requests and downloads run at once: enough to keep a
// connection busy, few enough for sites to like.
const parallel = 4

// A binary is a published file on its way into the bundle.
type binary struct {
	images.Binary
	sum     string       // the sha256 of the file
	pinned  bool         // whether the user gave it
	source  fetch.Source // of the sum, if not
	pieces  []piece      // what of it goes into the bundle; nil until the cache has it
	dropped bool         // optional, and left out
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
	b.chooseBinaries()
	wanted := b.wanted()
	digests, err := b.pin(wanted)
	if err != nil {
		return err
	}
	b.Progress.Printf("Kubernetes %s for linux/%s, pod network %s: %d programs, %d images\n",
		b.catalog.Version, b.Arch, b.CNI, len(b.binaries), len(wanted))

	var missing shortage
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for _, bin := range b.binaries {
		g.Go(func() error { return missing.note(bin, b.resolveBinary(ctx, bin)) })
	}
	b.images = make([]*registry.Image, len(wanted))
	for n, i := range wanted {
		g.Go(func() (err error) {
			b.images[n], err = b.registry.Resolve(ctx, registry.Wanted{
				Name: i.Name, Reference: i.Reference, Digest: digests[i.Reference], Fixed: n < len(b.catalog.Images)})
			return missing.note(i, err)
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return b.report(&missing)
}

// chooseBinaries takes the catalog's, without what the user does not want.
func (b *builder) chooseBinaries() {
	for _, c := range b.catalog.Binaries {
		if slices.Contains(b.Without, c.Name) {
			b.leaveOut(c, "--without "+c.Name)
		} else {
			b.binaries = append(b.binaries, &binary{Binary: c})
		}
	}
}

// resolveBinary learns a binary's checksum: from the user, from the cache if that
// has all of it, for releases do not change, or else from its site.
func (b *builder) resolveBinary(ctx context.Context, bin *binary) (err error) {
	if bin.pinned {
		bin.pieces, err = b.cachedPieces(ctx, bin, bin.sum)
		return err
	}
	if known, ok := b.recall(bin); ok && !b.Refresh {
		bin.sum, bin.source = known.SHA256, known.Source
		if bin.pieces, err = b.cachedPieces(ctx, bin, bin.sum); err != nil || bin.pieces != nil {
			return err
		}
	}
	if bin.sum, bin.source, err = b.fetch.Checksum(ctx, bin.ChecksumURL, bin.URL); err != nil {
		return fmt.Errorf("finding the checksum of %s: %w", label(bin), err)
	}
	if bin.pieces, err = b.cachedPieces(ctx, bin, bin.sum); err != nil || bin.pieces == nil {
		return err
	}
	return b.remember(bin) // for this source, too
}

// site is who is asked for what is at address.
func (b *builder) site(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return address
	}
	return b.mirrors.Site(u)
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
