package bundle

import (
	"archive/tar"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"airlift/bundle/head"
	"airlift/bundle/space"
)

// Progress is told of every n bytes of an entry that have passed. It is called
// from one goroutine at a time, and nil is allowed.
type Progress func(e Entry, n int64)

// A payloadWriter writes the payload, part by part, as a compressed tar.
type payloadWriter struct {
	out     io.Writer
	dir     string // for what waits for its turn
	options Options
	open    func(Entry) (io.ReadCloser, error)

	mu       sync.Mutex // of progress
	progress Progress
}

// write writes all parts, and their sizes to t. The images, most of the bytes, are
// compressed beside the others, into a file without a name.
func (w *payloadWriter) write(ctx context.Context, t *head.Trailer, entries []Entry) error {
	images, err := os.CreateTemp(w.dir, ".images.*.partial")
	if err != nil {
		return err
	}
	defer images.Close()
	if err := os.Remove(images.Name()); err != nil {
		return err
	}
	parts := maps.Collect(partsOf(entries))
	var size countingWriter
	out := io.MultiWriter(w.out, &size)

	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0)) // on one core it would only take twice the memory
	g.Go(func() error { return w.part(gctx, images, ImagesPart, parts[ImagesPart]) })
	g.Go(func() error {
		if err := w.part(gctx, out, HeadPart, []Entry{manifestEntry(*t), installerEntry(*t)}); err != nil {
			return err
		}
		t.HeadSize = uint64(size)
		if len(parts[ProgramsPart]) == 0 {
			return nil
		}
		err := w.part(gctx, out, ProgramsPart, parts[ProgramsPart])
		t.ProgramsSize = uint64(size) - t.HeadSize
		return err
	})
	if err := g.Wait(); err != nil {
		return cmp.Or(ctx.Err(), err) // a program that was killed does not say why
	}
	waiting, err := images.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	// Now they are on the disk twice.
	if err := space.Check(w.dir, "the images in the bundle", waiting); err != nil {
		return err
	}
	if _, err := images.Seek(0, io.SeekStart); err != nil {
		return err
	}
	_, err = io.Copy(out, contextReader{ctx, images})
	t.PayloadSize = uint64(size)
	return err
}

// part writes the part called name to out. The last one ends the tar.
func (w *payloadWriter) part(ctx context.Context, out io.Writer, name string, entries []Entry) error {
	last := name == ImagesPart
	size := tarSize(entries)
	if last {
		size += tarEnd
	}
	window := windowFor(size)
	if name == HeadPart {
		window = min(window, headWindow)
	}
	z, err := newEncoder(ctx, out, size, window, w.options.Level)
	if err != nil {
		return err
	}
	t := tar.NewWriter(z)
	for _, e := range entries {
		if err := w.add(ctx, t, e); err != nil {
			z.Close() // ends its goroutines; what it writes is thrown away
			return fmt.Errorf("adding %s: %w", e.Name, err)
		}
	}
	end := t.Flush // the padding
	if last {
		end = t.Close
	}
	if err := end(); err != nil {
		z.Close()
		return err
	}
	err = z.Close()
	// Half a gigabyte of tables, which the collector would still leave alone when
	// the next part asks for as much.
	debug.FreeOSMemory()
	return err
}

// tarHeader is the same for everyone at any time: root's, from 1970, and
// executable where it is a program. Plain ustar unless the size
// is beyond its 8 GiB.
func tarHeader(name string, size int64) *tar.Header {
	h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o644}
	if name == InstallerName || strings.HasPrefix(name, BinDir) || strings.HasPrefix(name, CNIDir) {
		h.Mode = 0o755
	}
	return h
}

// tarSize is the size in bytes of the entries in the uncompressed tar.
func tarSize(entries []Entry) (n int64) {
	for _, e := range entries {
		n += head.HeaderLen(e.Size) + head.Padded(e.Size)
	}
	return n
}

const tarEnd = 2 * head.TarBlock // the two blocks of zeros that end a tar

// add writes an entry, which must be exactly what the manifest says.
func (w *payloadWriter) add(ctx context.Context, t *tar.Writer, e Entry) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r, err := w.open(e)
	if err != nil {
		return err
	}
	defer r.Close()
	if err := t.WriteHeader(tarHeader(e.Name, e.Size)); err != nil {
		return err
	}
	sum := sha256.New()
	var out io.Writer = io.MultiWriter(sum, t)
	if w.progress != nil && e.Name != ManifestName {
		out = io.MultiWriter(sum, t, writerFunc(func(p []byte) (int, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.progress(e, int64(len(p)))
			return len(p), nil
		}))
	}
	src := contextReader{ctx, r}
	n, err := io.CopyBuffer(struct{ io.Writer }{out}, io.LimitReader(src, e.Size), make([]byte, 256<<10))
	if err != nil {
		return err
	}
	if n < e.Size {
		return fmt.Errorf("source has %d bytes, the manifest says %d", n, e.Size)
	}
	if more, err := io.Copy(io.Discard, io.LimitReader(src, 1)); err != nil {
		return err
	} else if more > 0 {
		return fmt.Errorf("source has more than the %d bytes the manifest says", e.Size)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != e.SHA256 {
		return fmt.Errorf("source has sha256 %s, the manifest says %s", got, e.SHA256)
	}
	return nil
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

type countingWriter int64

func (c *countingWriter) Write(p []byte) (int, error) {
	*c += countingWriter(len(p))
	return len(p), nil
}
