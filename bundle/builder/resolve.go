package builder

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"golang.org/x/sync/errgroup"

	"airlift/bundle/builder/lock"
	"airlift/images/local"
	"airlift/images/registry"
)

// resolve reads the site's sources, and finds the checksums of all binaries and the digests of all images.
func (b *build) resolve(ctx context.Context) (err error) {
	found := &b.found
	finder := releaseFinder{Target: b.options.Target, trust: b.options.Trust, fetch: b.sites.fetch, report: b.report}
	if found.release, err = finder.find(ctx); err != nil {
		return err
	}
	reader := localReader{local.Reader{Cache: b.sites.cache, Arch: b.options.Arch, Namespace: b.options.Namespace, Keep: b.options.KeepCompressed}, b.report}
	// A manifest may name an image of a local source.
	var own map[string]*local.Image
	if own, found.named, err = reader.readAll(ctx, b.sources, found.named); err != nil {
		return err
	}
	if err := b.readSite(ctx); err != nil {
		return err
	}
	found.components = b.choice().of(found.release.Catalog)
	wanted := found.wanted(own)
	if err := found.objects.checkComplete(b.options.Target, found.base, wanted); err != nil {
		return err
	}
	line, err := found.describe(len(wanted))
	if err != nil {
		return err
	}
	b.report.Printf("%s\n", line)
	others, err := found.otherBinaries()
	if err != nil {
		return err
	}
	if err := pin(b.options.Pins, found.components.binaries, wanted, others); err != nil {
		return err
	}
	if err := found.applyLock(b.options.Trust, wanted); err != nil {
		return err
	}
	return b.request(ctx, wanted)
}

// readSite reads the manifests of the add-ons, and the site's manifests and files, and adds the images
// of the workloads to the named ones.
func (b *build) readSite(ctx context.Context) error {
	found := &b.found
	earlier, err := found.base.objects(ctx)
	if err != nil {
		return fmt.Errorf("reading the manifests of the base: %w", err)
	}
	r := siteReader{Target: b.options.Target, from: objectReader{charts: b.sites.charts, version: found.release.Version}}
	r.addBase(found.base, earlier)
	named, err := r.read(ctx, b.options.Selection)
	for _, reference := range named {
		if !slices.Contains(found.named, reference) {
			found.named = append(found.named, reference)
		}
	}
	found.objects, found.content = r.objects, r.content
	return err
}

// request requests the checksums and digests that are not known yet.
func (b *build) request(ctx context.Context, wanted []*wantedImage) error {
	var missing shortage
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	binaries := b.binaries()
	for _, bin := range b.found.components.binaries {
		g.Go(func() error { return missing.note(bin, binaries.resolve(ctx, bin)) })
	}
	resolved := make([]*image, len(wanted))
	for n, w := range wanted {
		g.Go(func() (err error) {
			resolved[n], err = resolveImage(ctx, b.sites.registry, w)
			return missing.note(w.Image, w.explain(err))
		})
	}
	b.found.images = resolved
	if err := g.Wait(); err != nil {
		return err
	}
	return b.settle(&missing)
}

// resolveImage finds the digest of an image: from a local source, or else from its registry.
func resolveImage(ctx context.Context, r *registry.Client, w *wantedImage) (*image, error) {
	if w.local != nil {
		return takeLocal(w)
	}
	img, err := r.Resolve(ctx, registry.Wanted{Name: w.Name, Reference: w.Reference, Digest: w.digest, Fixed: w.fixed})
	if err != nil {
		return nil, err
	}
	return &image{Image: &img.Image, registry: img, locked: w.locked}, nil
}

// settle leaves out the missing components that are optional, and returns an error with all others.
func (b *build) settle(missing *shortage) error {
	b.choice().dropMissing(&b.found.components, missing)
	return missing.err(b.found.release, b.options.Lock != nil, b.sites.mirrored())
}

// verifySignatures verifies upstream's signatures, and compares the result with the lock.
func (b *build) verifySignatures(ctx context.Context) (err error) {
	if !b.options.verifies() {
		return nil
	}
	found := &b.found
	v := verification{mode: b.options.VerifySignatures, root: b.root, rootDir: filepath.Join(b.options.CacheDir, "trusted-root"), refresh: b.options.Refresh, sites: b.sites, report: b.report}
	if found.signed, err = v.run(ctx, found.components.binaries, found.images); err != nil || b.options.Lock == nil {
		return err
	}
	now, err := found.lock()
	if err != nil {
		return err
	}
	return b.options.drift(lock.Differences(b.options.Lock, now))
}
