package bundle

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strings"

	"airlift/bundle/head"
)

// Progress is told of every n bytes of an entry that have passed. It is called
// from one goroutine at a time, and nil is allowed.
type Progress func(e Entry, n int64)

// A payloadWriter writes the payload, entry by entry, as a compressed tar.
type payloadWriter struct {
	zstd     io.WriteCloser
	tar      *tar.Writer
	rest     []Entry // still to come
	progress Progress
}

func newPayloadWriter(ctx context.Context, w io.Writer, entries []Entry, o Options, p Progress) (*payloadWriter, error) {
	z, err := newEncoder(ctx, w, tarSize(entries), o.Level)
	if err != nil {
		return nil, err
	}
	return &payloadWriter{zstd: z, tar: tar.NewWriter(z), rest: entries, progress: p}, nil
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

// tarSize is the size in bytes of the uncompressed tar of entries.
func tarSize(entries []Entry) int64 {
	n := int64(tarEnd)
	for _, e := range entries {
		n += head.HeaderLen(e.Size) + head.Padded(e.Size)
	}
	return n
}

const tarEnd = 2 * head.TarBlock // the two blocks of zeros that end a tar

// add writes the next entry from r, which must hold exactly what the manifest
// says.
func (w *payloadWriter) add(ctx context.Context, r io.Reader) error {
	e := w.rest[0]
	w.rest = w.rest[1:]
	if err := w.tar.WriteHeader(tarHeader(e.Name, e.Size)); err != nil {
		return err
	}
	sum := sha256.New()
	var out io.Writer = io.MultiWriter(sum, w.tar)
	if w.progress != nil && e.Name != ManifestName {
		out = io.MultiWriter(sum, w.tar, writerFunc(func(p []byte) (int, error) {
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

// close ends the tar and the compressed stream.
func (w *payloadWriter) close() error {
	if err := w.tar.Close(); err != nil {
		return err
	}
	return w.zstd.Close()
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
