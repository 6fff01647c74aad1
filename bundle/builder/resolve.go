package builder

import (
	"context"
	"fmt"
	"net/url"
	"slices"

	"golang.org/x/sync/errgroup"

	"airlift/bundle"
	"airlift/bundle/fetch"
	"airlift/images"
	"airlift/images/registry"
)

// parallel is the number of requests and downloads at a time: enough to use the
// connection, and few enough for the sites.
const parallel = 4

// A binary is a published file with binaries for the bundle.
type binary struct {
	images.Binary
	sum     string         // the sha256 of the file
	pinned  bool           // sum is from --checksum or --checksums
	locked  bool           // sum is from the lock
	source  fetch.Source   // of the sum, if it is neither pinned nor locked
	entries []bundle.Entry // its entries in the bundle; nil until they are in the cache
	dropped bool           // optional and left out
	signed  signed
}

// resolve reads the site's sources, and finds the checksums of all binaries and the digests of all images.
func (b *builder) resolve(ctx context.Context) error {
	if err := b.chooseRelease(ctx); err != nil {
		return err
	}
	// A manifest may name an image of a local source.
	local, err := b.readLocal(ctx)
	if err != nil {
		return err
	}
	if err := b.readSite(ctx); err != nil {
		return err
	}
	b.chooseBinaries()
	wanted := b.wanted()
	if err := b.checkComplete(wanted); err != nil {
		return err
	}
	if err := b.describeContent(wanted); err != nil {
		return err
	}
	digests, err := b.pin(wanted)
	if err != nil {
		return err
	}
	inLock, err := b.applyLock(wanted, local, digests)
	if err != nil {
		return err
	}

	var missing shortage
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for _, bin := range b.binaries {
		g.Go(func() error { return missing.note(bin, b.resolveBinary(ctx, bin)) })
	}
	b.images = make([]*image, len(wanted))
	for n, i := range wanted {
		g.Go(func() (err error) {
			if l := local[i.Reference]; l != nil {
				b.images[n], err = takeLocal(l, i, digests[i.Reference])
				return err
			}
			img, err := b.registry.Resolve(ctx, registry.Wanted{
				Name: i.Name, Reference: i.Reference, Digest: digests[i.Reference], Fixed: n < len(b.catalog.Images)})
			if err == nil {
				b.images[n] = &image{Image: &img.Image, registry: img, locked: inLock[i.Reference]}
			}
			return missing.note(i, err)
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return b.report(&missing)
}

// chooseBinaries takes the binaries of the catalog that the user did not exclude.
func (b *builder) chooseBinaries() {
	for _, c := range b.catalog.Binaries {
		if slices.Contains(b.Without, c.Name) {
			b.leaveOut(c, "--without "+c.Name)
		} else if b.Lock != nil && b.Lock.Absent(c.URL) && !slices.Contains(b.Require, c.Name) {
			b.leaveOut(c, "as in "+b.LockPath)
		} else {
			b.binaries = append(b.binaries, &binary{Binary: c})
		}
	}
}

// resolveBinary finds a binary's checksum: from the user or the lock, from the cache if all of its
// contents are there (releases do not change), or else from its site.
func (b *builder) resolveBinary(ctx context.Context, bin *binary) (err error) {
	if bin.pinned || bin.locked {
		bin.entries, err = b.cachedEntries(ctx, bin, bin.sum)
		return err
	}
	if known, ok := b.recall(bin); ok && !b.Refresh {
		bin.sum, bin.source = known.SHA256, known.Source
		if bin.entries, err = b.cachedEntries(ctx, bin, bin.sum); err != nil || bin.entries != nil {
			return err
		}
	}
	if bin.sum, bin.source, err = b.fetch.Checksum(ctx, bin.ChecksumURL, bin.URL); err != nil {
		return fmt.Errorf("finding the checksum of %s: %w", label(bin), err)
	}
	if bin.entries, err = b.cachedEntries(ctx, bin, bin.sum); err != nil || bin.entries == nil {
		return err
	}
	return b.remember(bin) // also for this source
}

// site returns the site or mirror that serves address.
func (b *builder) site(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return address
	}
	return b.mirrors.Site(u)
}

// wanted lists the catalog's images, followed by the user's images.
func (b *builder) wanted() []images.Image {
	list := slices.Clone(b.catalog.Images)
	for _, ref := range b.Images {
		if !slices.ContainsFunc(list, func(i images.Image) bool { return i.Reference == ref }) {
			list = append(list, images.Image{Name: ref, Reference: ref})
		}
	}
	return list
}

// label is the name of a binary in messages.
func label(bin *binary) string { return bin.Name + " " + bin.Version }
