package bundle

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
)

// Progress is told of every n bytes of an entry that have passed. It is called
// from one goroutine at a time, and nil is allowed.
type Progress func(e Entry, n int64)

// A payloadWriter writes the payload: the manifest, then every entry in the
// manifest's order, as a compressed tar.
type payloadWriter struct {
	zstd     io.WriteCloser
	tar      *tar.Writer
	rest     []Entry // still to come
	progress Progress
}

func newPayloadWriter(w io.Writer, m *Manifest, manifest []byte, o Options, p Progress) (*payloadWriter, error) {
	z, err := newEncoder(w, tarSize(m, len(manifest)), o.Level)
	if err != nil {
		return nil, err
	}
	pw := &payloadWriter{zstd: z, tar: tar.NewWriter(z), rest: m.Entries, progress: p}
	if err := pw.tar.WriteHeader(tarHeader(ManifestName, int64(len(manifest)))); err != nil {
		return nil, err
	}
	if _, err := pw.tar.Write(manifest); err != nil {
		return nil, err
	}
	return pw, nil
}

// tarHeader is the same for everyone at any time: root's, from 1970, and
// executable where the folder is one of programs. Plain ustar unless the size
// is beyond its 8 GiB.
func tarHeader(name string, size int64) *tar.Header {
	h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o644}
	if strings.HasPrefix(name, BinDir) || strings.HasPrefix(name, CNIDir) {
		h.Mode = 0o755
	}
	return h
}

// tarSize is the size in bytes of the uncompressed tar.
func tarSize(m *Manifest, manifest int) int64 {
	n := headerLen(int64(manifest)) + padded(int64(manifest))
	for _, e := range m.Entries {
		n += headerLen(e.Size) + padded(e.Size)
	}
	return n + tarEnd
}

const (
	tarBlock = 512
	tarEnd   = 2 * tarBlock // the two blocks of zeros that end a tar
)

// headerLen is the number of bytes that stand before the content of an entry
// of size bytes: one block, or three where the size does not fit into ustar's
// eleven octal digits and takes a PAX record (a header, its data, the header).
func headerLen(size int64) int64 {
	if size >= 1<<33 {
		return 3 * tarBlock
	}
	return tarBlock
}

// padded rounds n up to whole blocks.
func padded(n int64) int64 { return (n + tarBlock - 1) / tarBlock * tarBlock }

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
	if w.progress != nil {
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
