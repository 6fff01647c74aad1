package builder

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"golang.org/x/sync/errgroup"

	"airlift/builder/oci"
	"airlift/builder/registry"
	"airlift/builder/upstreamsig"
	"airlift/internal/fault"
	"airlift/internal/space"
)

// download downloads all resolved contents into the cache.
func (b *build) download(ctx context.Context) error {
	if err := b.checkRoom(ctx); err != nil {
		return err
	}
	var missing shortage
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for _, bin := range b.binaries {
		g.Go(func() error { return missing.note(bin.label(), bin, b.getBinary(gctx, bin)) })
	}
	var err error
	claimed := map[string]bool{} // blobs of layers, by digest
	for _, img := range b.images {
		if err = b.getImage(gctx, g, img, claimed); err != nil {
			break
		}
	}
	// The first error cancels the context of the others, so it is the cause.
	if werr := g.Wait(); werr != nil {
		err = werr
	}
	if err == nil {
		err = b.settle(&missing)
	}
	if err == nil {
		err = b.checkSigned()
	}
	if err != nil {
		return err
	}
	for _, img := range b.images {
		for n := range img.compressed() { // sets the sizes of layers that were pulled for another image
			if err := b.registry.Pull(ctx, img.registry, n, nil); err != nil {
				return err
			}
		}
	}
	for _, img := range b.images {
		if err := oci.CheckLayers(ctx, b.cache, img.Image, b.base.has); err != nil {
			return err
		}
	}
	return nil
}

// checkSigned compares what the signed binaries and images are with their URLs and tags. Their
// signatures were verified before the download, and name no version.
func (b *build) checkSigned() error {
	var wrong []string
	for _, bin := range b.binaries {
		if bin.signed.by == "" {
			continue
		}
		for _, e := range bin.entries {
			file, err := b.cache.Open(e.SHA256)
			if err != nil {
				return err
			}
			err = upstreamsig.CheckBinary(file, e.Size, bin.URL)
			file.Close()
			if err != nil {
				wrong = append(wrong, bin.label()+": "+err.Error())
			}
		}
	}
	for _, img := range b.images {
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
		file, err := b.cache.Open(oci.Hex(l.DiffID))
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
		here, err := upstreamsig.CheckLayer(file, i.Size(), img.Reference, b.Arch)
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

// checkRoom compares the free space of cache and output with what the build will write, as far as its
// size is known before the downloads. The cache keeps layers uncompressed, so they take more.
func (b *build) checkRoom(ctx context.Context) error {
	var downloads int64
	for _, l := range b.layers() {
		_, have, err := b.registry.Cached(ctx, l)
		if err != nil {
			return err
		}
		if !have {
			downloads += l.Size
		}
	}
	if space.Shared(b.CacheDir, filepath.Dir(b.Output)) {
		return space.Check(b.CacheDir, "the downloads and the bundle (estimated)", downloads+b.estimate())
	}
	if err := space.Check(b.CacheDir, "the downloads (estimated)", downloads); err != nil {
		return err
	}
	return b.checkOutputRoom()
}

// checkOutputRoom checks again when everything is in the cache and the estimate is
// better.
func (b *build) checkOutputRoom() error {
	return space.Check(filepath.Dir(b.Output), "the bundle (estimated)", b.estimate())
}

// estimate is the approximate disk space, in bytes, for writing the bundle. Layers take about half
// of their size in a registry, and are on the disk twice until the bundle is complete. Binaries,
// the site's own files and the installer take a fifth of their size.
func (b *build) estimate() int64 {
	n := int64(len(b.Executables.Launcher))
	for _, l := range b.layers() {
		n += l.Size
	}
	small := int64(len(b.Executables.Installer)) + total(b.content.early) + total(b.content.late)
	for _, img := range b.images {
		for _, l := range img.Layers {
			if img.local != nil && !b.base.has(l.DiffID) {
				small += l.Size
			}
		}
	}
	for _, bin := range b.binaries {
		small += total(bin.entries)
	}
	return n + small/5
}

// layers lists the layers of the bundle that come from a registry.
func (b *build) layers() (list []registry.Layer) {
	seen := map[string]bool{}
	for _, img := range b.images {
		for _, l := range img.compressed() {
			if !b.base.has(l.DiffID) && !seen[l.DiffID] {
				seen[l.DiffID] = true
				list = append(list, l)
			}
		}
	}
	return list
}
