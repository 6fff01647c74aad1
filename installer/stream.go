package installer

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
	"airlift/images/store"
	"airlift/installer/host"
	"airlift/installer/timeline"
)

// A bundleStream reads the bundle once, in the background, and hands every entry to
// where it belongs: binaries to the host, image blobs to containerd. Steps wait
// for what they need by name.
type bundleStream struct {
	file     *bundle.File
	host     *host.Host
	binaries map[string]host.Binary // wanted programs by entry name
	images   []bundle.Image         // wanted images
	aliases  map[string]string      // the second names that images get, by reference
	never    bool                   // images that are missing are not imported

	runtime chan *store.Store // receives containerd once, when it runs

	total, moved atomic.Int64 // bytes of what had to be moved

	mu      sync.Mutex
	waiting map[string]chan struct{} // closed when the entry or image is there
	done    chan struct{}            // closed when run has returned
	err     error                    // why it stopped, after done
	changed atomic.Int64             // programs and images that were not there before
}

func newBundleStream(f *bundle.File, m *bundle.Manifest, h *host.Host, wantsBinary func(name string) bool, images []bundle.Image) *bundleStream {
	p := &bundleStream{
		file: f, host: h, images: images,
		binaries: map[string]host.Binary{},
		runtime:  make(chan *store.Store, 1),
		waiting:  map[string]chan struct{}{},
		done:     make(chan struct{}),
	}
	for _, e := range m.Entries {
		if dest := binaryPath(e.Name); dest != "" && wantsBinary(e.Name) {
			p.binaries[e.Name] = host.Binary{Path: dest, SHA256: e.SHA256}
			p.waiting[e.Name] = make(chan struct{})
		}
	}
	for _, i := range images {
		p.waiting[i.Reference] = make(chan struct{})
	}
	return p
}

// start begins streaming; the context ends it.
func (p *bundleStream) start(ctx context.Context, m *bundle.Manifest) {
	ctx, span := timeline.Start(ctx, timeline.Bundle, "bundle")
	go func() {
		defer close(p.done)
		defer span.End()
		p.err = p.run(ctx, m)
		span.Set("bytes", p.moved.Load())
	}()
}

// useRuntime tells the stream which containerd takes the images.
func (p *bundleStream) useRuntime(s *store.Store) { p.runtime <- s }

// wait returns when every name (an entry or an image reference) is on the
// host, or with the error that ended the stream.
func (p *bundleStream) wait(ctx context.Context, names ...string) error {
	for _, name := range names {
		if err := p.waitFor(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

func (p *bundleStream) waitFor(ctx context.Context, name string) error {
	p.mu.Lock()
	ch := p.waiting[name]
	p.mu.Unlock()
	if ch == nil {
		return fmt.Errorf("waiting for %s: the bundle does not bring it", name)
	}
	select {
	case <-ch:
		return nil
	default:
	}
	defer timeline.Wait(ctx, "bundle", shortName(name)).End()
	select {
	case <-ch:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for %s: %w", name, ctx.Err())
	case <-p.done:
	}
	select {
	case <-ch: // arrived just before the stream ended
		return nil
	default:
	}
	if p.err != nil {
		return p.err
	}
	return fmt.Errorf("waiting for %s: the bundle ended without it", name)
}

// finish waits for the stream's end and returns its error.
func (p *bundleStream) finish(ctx context.Context) error {
	defer timeline.Wait(ctx, "bundle", "the rest").End()
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// announce ends the waits for an entry or an image.
func (p *bundleStream) announce(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.waiting[name]:
	default:
		close(p.waiting[name])
	}
}

func (p *bundleStream) run(ctx context.Context, m *bundle.Manifest) error {
	missing, err := p.lookForBinaries()
	if err != nil {
		return err
	}
	for _, e := range m.Entries {
		if _, ok := missing[e.Name]; ok {
			p.total.Add(e.Size)
		}
	}
	im := &lazyImporter{p: p, timeline: newImageTimeline(p.images)}
	defer func() { im.close(ctx) }()
	if len(missing) == 0 {
		// Nothing to unpack: only containerd knows whether images are missing.
		if err := im.open(ctx); err != nil {
			return err
		}
	}
	if len(missing) > 0 || !im.complete() {
		if err := p.stream(ctx, missing, im); err != nil {
			return err
		}
	}
	if err := im.open(ctx); err != nil {
		return err
	}
	return im.finish(ctx)
}

// lookForBinaries returns the programs that this host lacks. Those that it has
// are read and hashed, on all cores.
func (p *bundleStream) lookForBinaries() (missing map[string]host.Binary, err error) {
	missing = map[string]host.Binary{}
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for name, b := range p.binaries {
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

// stream reads the bundle until nothing more is wanted from it, and waits until
// what it brought is in its place.
func (p *bundleStream) stream(ctx context.Context, missing map[string]host.Binary, im *lazyImporter) error {
	defer sparingMemory()()
	settling, ctx := errgroup.WithContext(ctx)
	settling.SetLimit(programsAtOnce)
	err := p.read(ctx, missing, im, settling)
	if err == nil {
		err = im.finish(ctx)
	}
	// A program that could not be put in its place ended the reading, too.
	if settleErr := settling.Wait(); settleErr != nil {
		return settleErr
	}
	return err
}

// programsAtOnce is how many programs may be waiting for the disk at a time.
const programsAtOnce = 4

// read reads the bundle. Programs are left to settling once they are written.
func (p *bundleStream) read(ctx context.Context, missing map[string]host.Binary, im *lazyImporter, settling *errgroup.Group) error {
	s, err := p.file.Stream(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	s.Skip(p.unwanted(missing))
	for len(missing) > 0 || !im.complete() {
		e, content, err := s.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		r := counted{content, &p.moved}
		if b, ok := missing[e.Name]; ok {
			if err := p.install(ctx, e, b, r, settling); err != nil {
				return err
			}
			delete(missing, e.Name)
			continue
		}
		if err := im.open(ctx); err != nil {
			return err
		}
		if im.wants(e.Name) {
			if err := im.blob(ctx, e, r); err != nil {
				return err
			}
		}
	}
	if len(missing) > 0 {
		for name := range missing {
			return fmt.Errorf("unpacking: the bundle ended without %s", name)
		}
	}
	return nil
}

// unwanted says which entries neither an image nor this host needs.
func (p *bundleStream) unwanted(missing map[string]host.Binary) func(bundle.Entry) bool {
	wanted := map[string]bool{}
	for name := range missing {
		wanted[name] = true
	}
	for _, i := range p.images {
		for _, d := range []bundle.Descriptor{i.Target, i.Manifest, i.Config} {
			wanted[bundle.BlobName(d.Digest)] = true
		}
		for _, l := range i.Layers {
			wanted[bundle.BlobName(l.DiffID)] = true
		}
	}
	return func(e bundle.Entry) bool { return !wanted[e.Name] }
}

// install writes a program and lets it appear under its name when it is on the
// disk.
func (p *bundleStream) install(ctx context.Context, e bundle.Entry, b host.Binary, r io.Reader, settling *errgroup.Group) error {
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
		p.changed.Add(1)
		p.announce(e.Name)
		return nil
	})
	return nil
}

// sparingMemory keeps the collector from letting the heap grow to twice its
// size, as it usually does, while the decoder's window takes most of it. The
// window has no pointers, so that collecting more often costs little: measured,
// an import of a gigabyte collects ten times more, each time for some
// milliseconds. The function it returns ends that, and gives the window's memory
// back.
func sparingMemory() (end func()) {
	const percent = 4
	before := debug.SetGCPercent(percent)
	return func() {
		debug.SetGCPercent(before)
		debug.FreeOSMemory()
	}
}

// counted counts the bytes that are read of an entry.
type counted struct {
	bundle.Content
	n *atomic.Int64
}

func (c counted) Read(b []byte) (int, error) {
	n, err := c.Content.Read(b)
	c.n.Add(int64(n))
	return n, err
}
