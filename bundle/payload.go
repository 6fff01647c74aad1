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
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"airlift/bundle/head"
	"airlift/internal/atomicfile"
	"airlift/internal/interrupt"
	"airlift/internal/space"
)

// Progress is called with each n bytes of an entry that were processed, by one goroutine
// at a time. It may be nil.
type Progress func(e Entry, n int64)

// A payloadWriter writes the payload, part by part, as a compressed tar.
type payloadWriter struct {
	out   io.Writer
	dir   string // for the temporary file with the images
	level Level
	open  func(Entry) (io.ReadCloser, error)

	mu       sync.Mutex // of progress
	progress Progress
}

// write writes all parts, and their sizes to t. The images, which are most of the bytes,
// are compressed in parallel with the other parts, to an unlinked file.
func (w *payloadWriter) write(ctx context.Context, t *head.Trailer, entries []Entry) error {
	images, err := atomicfile.Create(filepath.Join(w.dir, "images"))
	if err != nil {
		return err
	}
	defer images.Discard()
	_ = os.Remove(images.Name()) // so that a crash leaves nothing; Windows cannot
	parts := maps.Collect(partsOf(entries))
	size := int64(0)
	out := io.MultiWriter(w.out, interrupt.Meter(func(n int64) { size += n }))

	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0)) // on one core, parallel work only needs twice the memory
	g.Go(func() error { return w.part(gctx, images.File, ImagesPart, parts[ImagesPart]) })
	g.Go(func() error {
		if err := w.part(gctx, out, HeadPart, headEntries(*t)); err != nil {
			return err
		}
		t.HeadSize = uint64(size)
		if len(parts[BinariesPart]) == 0 {
			return nil
		}
		err := w.part(gctx, out, BinariesPart, parts[BinariesPart])
		t.BinariesSize = uint64(size) - t.HeadSize
		return err
	})
	if err := g.Wait(); err != nil {
		return cmp.Or(ctx.Err(), err) // a killed zstd does not report the reason
	}
	waiting, err := images.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	// From here on the images are on the disk twice.
	if err := space.Check(w.dir, "the images in the bundle", waiting); err != nil {
		return err
	}
	if _, err := images.Seek(0, io.SeekStart); err != nil {
		return err
	}
	_, err = io.Copy(out, interrupt.Reader(ctx, images))
	t.PayloadSize = uint64(size)
	return err
}

// part writes the part called name to out. The last part ends the tar.
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
	z, err := newEncoder(ctx, out, size, window, w.level)
	if err != nil {
		return err
	}
	t := tar.NewWriter(z)
	for _, e := range entries {
		if err := w.add(ctx, t, e); err != nil {
			z.Close() // ends its goroutines; its output is discarded
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
	if window == MaxWindow {
		// Free half a gigabyte of tables now, because the next part needs as much.
		debug.FreeOSMemory()
	}
	return err
}

// tarHeader is the same on every machine: owned by root, from 1970, and executable if it
// is a binary. It is plain ustar unless the size exceeds 8 GiB.
func tarHeader(name string, size int64) *tar.Header {
	h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o644}
	if name == InstallerName || strings.HasPrefix(name, BinDir) || strings.HasPrefix(name, CNIDir) {
		h.Mode = 0o755
	}
	return h
}

// tarSize is the size of the entries in the uncompressed tar, in bytes.
func tarSize(entries []Entry) (n int64) {
	for _, e := range entries {
		n += head.HeaderLen(e.Size) + head.Padded(e.Size)
	}
	return n
}

const tarEnd = 2 * head.TarBlock // the two blocks of zeros that end a tar

// add writes an entry and checks that its content matches the manifest.
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
		out = io.MultiWriter(sum, t, interrupt.Meter(func(n int64) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.progress(e, n)
		}))
	}
	src := interrupt.Reader(ctx, r)
	n, err := io.CopyBuffer(struct{ io.Writer }{out}, io.LimitReader(src, e.Size), make([]byte, 256<<10))
	if err != nil {
		return err
	}
	if n < e.Size {
		return fmt.Errorf("source has %d bytes, the manifest lists %d", n, e.Size)
	}
	if more, err := io.Copy(io.Discard, io.LimitReader(src, 1)); err != nil {
		return err
	} else if more > 0 {
		return fmt.Errorf("source has more than the %d bytes that the manifest lists", e.Size)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != e.SHA256 {
		return fmt.Errorf("source has sha256 %s, the manifest lists %s", got, e.SHA256)
	}
	return nil
}
