package payload

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"airlift/bundle"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/timeline"
)

// A BundleStream reads the bundle once, in the background. It writes binaries
// to the host and imports images into containerd. Steps wait by name for the
// entries and images that they need.
type BundleStream struct {
	*arrivals
	file     *bundle.File
	host     *host.Host
	Binaries map[string]host.Binary // wanted binaries by entry name
	Images   *lazyImporter
	Site     *siteImporter
}

// NewBundleStream returns the stream of those entries of a bundle that a host needs. It does not start it.
func NewBundleStream(f *bundle.File, m *bundle.Manifest, h *host.Host, wantsBinary func(name string) bool, images ImageRequest, site SiteRequest) *BundleStream {
	p := &BundleStream{arrivals: newArrivals(), file: f, host: h, Binaries: map[string]host.Binary{}}
	for _, e := range m.Entries {
		if dest := node.BinaryPath(e.Name); dest != "" && wantsBinary(e.Name) {
			p.Binaries[e.Name] = host.Binary{Path: dest, SHA256: e.SHA256}
			p.expect(e.Name)
		}
	}
	p.Images = newLazyImporter(images, p.arrivals)
	p.Site = newSiteImporter(site, p.arrivals, h)
	return p
}

// Start starts the stream. Canceling the context stops it.
func (p *BundleStream) Start(ctx context.Context, m *bundle.Manifest) {
	ctx, span := timeline.Start(ctx, timeline.Bundle, "bundle")
	go func() {
		err := p.run(ctx, m)
		span.Set("bytes", p.Moved.Load())
		span.End()
		p.end(err)
	}()
}

func (p *BundleStream) run(ctx context.Context, m *bundle.Manifest) error {
	missing, err := p.lookForBinaries()
	if err != nil {
		return err
	}
	if err := p.Site.look(); err != nil {
		return err
	}
	for _, e := range m.Entries {
		if _, ok := missing[e.Name]; ok || p.Site.wants(e.Name) {
			p.Total.Add(e.Size)
		}
	}
	defer func() { p.Images.close(ctx) }()
	if len(missing) == 0 && p.Site.complete() {
		// Nothing else is missing. Only containerd knows whether images are.
		if err := p.Images.open(ctx); err != nil {
			return err
		}
	}
	if len(missing) > 0 || !p.Site.complete() || !p.Images.complete() {
		if err := p.stream(ctx, missing); err != nil {
			return err
		}
	}
	if err := p.Images.open(ctx); err != nil {
		return err
	}
	return p.Images.finish(ctx)
}

// lookForBinaries returns the binaries that are missing on this host. It hashes
// the existing ones, on all cores.
func (p *BundleStream) lookForBinaries() (missing map[string]host.Binary, err error) {
	missing = map[string]host.Binary{}
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for name, b := range p.Binaries {
		group.Go(func() error {
			there, err := p.host.HasBinary(b)
			if err != nil {
				return err
			}
			if there {
				p.announce(name)
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			missing[name] = b
			return nil
		})
	}
	err = group.Wait()
	return missing, err
}

// stream reads the bundle until nothing more is needed from it. It then waits
// until all binaries and images are in place.
func (p *BundleStream) stream(ctx context.Context, missing map[string]host.Binary) error {
	defer sparingMemory()()
	settling, ctx := errgroup.WithContext(ctx)
	settling.SetLimit(binariesAtOnce)
	err := p.read(ctx, missing, settling)
	if err == nil {
		err = p.Images.finish(ctx)
	}
	// If a binary could not be put in place, this is the error that stopped
	// read.
	if settleErr := settling.Wait(); settleErr != nil {
		return settleErr
	}
	return err
}

// binariesAtOnce is how many binaries may wait for the disk at the same time.
const binariesAtOnce = 4

// read reads the bundle. After it has written a binary, settling moves it into
// place.
func (p *BundleStream) read(ctx context.Context, missing map[string]host.Binary, settling *errgroup.Group) error {
	s, err := p.file.Stream(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	s.Skip(p.unwanted(missing))
	for len(missing) > 0 || !p.Site.complete() || !p.Images.complete() {
		e, content, err := s.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		r := counted{content, &p.Moved}
		if b, ok := missing[e.Name]; ok {
			if err := p.install(ctx, e, b, r, settling); err != nil {
				return err
			}
			delete(missing, e.Name)
			continue
		}
		if p.Site.wants(e.Name) { // before containerd runs, if the entry precedes the images
			if err := p.Site.take(ctx, e, r); err != nil {
				return err
			}
			continue
		}
		if err := p.Images.open(ctx); err != nil {
			return err
		}
		if p.Images.wants(e.Name) {
			if err := p.Images.blob(ctx, e, r); err != nil {
				return err
			}
		}
	}
	if len(missing) > 0 {
		for name := range missing {
			return fmt.Errorf("unpacking: the bundle ended without %s", name)
		}
	}
	if !p.Site.complete() {
		return errors.New("unpacking: the bundle ended without all of the site's files and manifests")
	}
	return nil
}

// unwanted returns a function that reports whether no image, no missing binary
// and nothing of the site needs an entry.
func (p *BundleStream) unwanted(missing map[string]host.Binary) func(bundle.Entry) bool {
	wanted := map[string]bool{}
	for name := range missing {
		wanted[name] = true
	}
	for _, i := range p.Images.Wanted {
		for _, d := range i.Documents() {
			wanted[bundle.BlobName(d.Digest)] = true
		}
		for _, l := range i.Layers {
			wanted[bundle.BlobName(l.DiffID)] = true
		}
	}
	for name := range p.Site.missing {
		wanted[name] = true
	}
	for _, name := range p.Site.Manifests {
		wanted[name] = true
	}
	return func(e bundle.Entry) bool { return !wanted[e.Name] }
}

// install writes a binary to a temporary file. In the background it syncs the
// file to the disk and then renames it.
func (p *BundleStream) install(ctx context.Context, e bundle.Entry, b host.Binary, r io.Reader, settling *errgroup.Group) error {
	ctx, span := timeline.Start(ctx, timeline.Bundle, e.Name)
	defer span.End()
	span.Set("bytes", e.Size)
	staged, err := p.host.StageBinary(ctx, b, r)
	if err != nil {
		return err
	}
	settling.Go(func() error {
		if err := staged.Settle(); err != nil {
			return err
		}
		p.Changed.Add(1)
		p.announce(e.Name)
		return nil
	})
	return nil
}

// sparingMemory makes the garbage collector run more often, so that the heap
// grows by 4 % instead of 100 % between two runs. The decoder's window is most
// of the heap and has no pointers, so a run is cheap: measured, an import of 1
// GB has ten times as many runs, each of some milliseconds. The returned
// function ends this and releases the window's memory.
func sparingMemory() (end func()) {
	const percent = 4
	before := debug.SetGCPercent(percent)
	return func() {
		debug.SetGCPercent(before)
		debug.FreeOSMemory()
	}
}

// counted counts the bytes that are read from an entry.
type counted struct {
	bundle.Content
	n *atomic.Int64
}

func (c counted) Read(b []byte) (int, error) {
	n, err := c.Content.Read(b)
	c.n.Add(int64(n))
	return n, err
}
