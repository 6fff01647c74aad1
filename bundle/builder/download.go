package builder

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"golang.org/x/sync/errgroup"

	"airlift/bundle/builder/upstreamsig"
	"airlift/images/oci"
	"airlift/internal/fault"
)

// download downloads all resolved contents into the cache.
func (b *build) download(ctx context.Context) error {
	found := &b.found
	size, err := found.toDownload(ctx, b.sites.registry)
	if err != nil {
		return err
	}
	if err := checkRoom(b.options.CacheDir, b.options.Output, size, found.estimate()+b.options.size()); err != nil {
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
	if err := b.checkSigned(); err != nil {
		return err
	}
	if err := layers.finish(ctx, found.images); err != nil {
		return err
	}
	for _, img := range found.images {
		if err := oci.CheckLayers(ctx, b.sites.cache, img.Image, found.base.has); err != nil {
			return err
		}
	}
	return nil
}

// checkSigned compares what the signed binaries and images are with their URLs and tags. Their
// signatures were verified before the download, and name no version.
func (b *build) checkSigned() error {
	var wrong []string
	for _, bin := range b.found.components.binaries {
		if bin.signed.by == "" {
			continue
		}
		for _, e := range bin.entries {
			file, err := b.sites.cache.Open(e.SHA256)
			if err != nil {
				return err
			}
			err = upstreamsig.CheckBinary(file, e.Size, bin.URL)
			file.Close()
			if err != nil {
				wrong = append(wrong, label(bin)+": "+err.Error())
			}
		}
	}
	for _, img := range b.found.images {
		if img.signed.by == "" || !upstreamsig.NamesVersion(img.Reference) {
			continue
		}
		if err := b.checkCommand(img); err != nil {
			wrong = append(wrong, img.Reference+": "+err.Error())
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	return fault.New(fault.Failure, "verifying upstream's signatures:\n  %s", strings.Join(wrong, "\n  ")).Hint(hintInvalid)
}

// checkCommand compares the command in an image with the tag of the image. Layers of the base were
// compared when the base was built.
func (b *build) checkCommand(img *image) error {
	found := false
	for _, l := range img.Layers {
		file, err := b.sites.cache.Open(oci.Hex(l.DiffID))
		if errors.Is(err, fs.ErrNotExist) {
			found = true
			continue
		}
		if err != nil {
			return err
		}
		defer file.Close()
		i, err := file.Stat()
		if err != nil {
			return err
		}
		here, err := upstreamsig.CheckLayer(file, i.Size(), img.Reference, b.options.Arch)
		if err != nil {
			return err
		}
		found = found || here
	}
	if !found {
		return fmt.Errorf("%w: the image does not have the command of its name", upstreamsig.ErrOther)
	}
	return nil
}
