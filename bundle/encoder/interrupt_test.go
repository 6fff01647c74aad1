package encoder_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"syscall"
	"testing"

	kgzip "github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/klauspost/pgzip"

	"airlift/bundle/encoder"
	"airlift/scripts/fixtures/seed"
)

// A breaking source is disturbed once at a read: the error replaces the bytes from there on, or the
// context is cancelled. Its later openers work again, as a disk or a network that recovers.
type breaking struct {
	content []byte
	after   int // bytes
	disturb func() error
	reached bool
}

func (b *breaking) open() (io.ReadCloser, error) {
	return io.NopCloser(&brokenReader{bytes.NewReader(b.content), b}), nil
}

type brokenReader struct {
	r *bytes.Reader
	b *breaking
}

func (r *brokenReader) Read(p []byte) (int, error) {
	read := int(r.r.Size()) - r.r.Len()
	if left := r.b.after - read; !r.b.reached && left < len(p) {
		if left > 0 {
			return r.r.Read(p[:left])
		}
		r.b.reached = true
		if err := r.b.disturb(); err != nil {
			return 0, err
		}
	}
	return r.r.Read(p)
}

// An interruption or an error while the blob or the layer is read is an error of Find, wherever it
// happens: never the answer that no encoder gives the blob, and never another encoder.
func TestFindDisturbed(t *testing.T) {
	r := rand.New(rand.NewPCG(seed.Value(t), 0))
	creators := map[string]func(io.Writer) (io.WriteCloser, error){
		"go":        func(w io.Writer) (io.WriteCloser, error) { return gzip.NewWriter(w), nil },
		"klauspost": func(w io.Writer) (io.WriteCloser, error) { return kgzip.NewWriterLevel(w, 3) },
		"pgzip":     func(w io.Writer) (io.WriteCloser, error) { return pgzip.NewWriter(w), nil },
		"zlib":      func(w io.Writer) (io.WriteCloser, error) { return byName("zlib-6", w) },
		"pigz":      func(w io.Writer) (io.WriteCloser, error) { return byName("pigz-6", w) },
		"zstd":      func(w io.Writer) (io.WriteCloser, error) { return zstd.NewWriter(w) },
	}
	for name, create := range creators {
		for _, size := range []int{1000, 700_000} {
			content := layer(size)
			blob := compressed(t, content, create)
			want, ok, err := encoder.Find(t.Context(), opener(blob), opener(content))
			if err != nil || !ok {
				t.Fatalf("%s: %v, %v", name, ok, err)
			}
			disturbed := 0
			for range 6 {
				ctx, cancel := context.WithCancel(t.Context())
				kind, disturb := "", func() error { cancel(); return nil }
				switch kind = []string{"interruption", "I/O error", "end of a connection"}[r.IntN(3)]; kind {
				case "I/O error":
					disturb = func() error { return syscall.EIO }
				case "end of a connection":
					disturb = func() error { return io.ErrUnexpectedEOF }
				}
				b, l := &breaking{content: blob, after: len(blob) + 1}, &breaking{content: content, after: len(content) + 1}
				hit, place := l, "layer"
				if r.IntN(2) == 0 && kind != "interruption" { // the blob's reader does not see the context
					hit, place = b, "blob"
				}
				hit.after, hit.disturb = r.IntN(len(hit.content)), disturb
				got, ok, err := encoder.Find(ctx, b.open, l.open)
				cancel()
				what := fmt.Sprintf("%s, %d bytes: %s after %d bytes of the %s", name, size, kind, hit.after, place)
				if hit.reached {
					disturbed++
				}
				switch {
				case err == nil && (!ok || got.Encoder != want.Encoder):
					t.Errorf("%s: no error, and %q, not %q", what, got.Encoder, want.Encoder)
				case err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, syscall.EIO) && !errors.Is(err, io.ErrUnexpectedEOF):
					t.Errorf("%s: %v", what, err)
				case err != nil && ok:
					t.Errorf("%s: %v, and a result", what, err)
				}
			}
			if disturbed == 0 {
				t.Errorf("%s, %d bytes: nothing was disturbed", name, size)
			}
		}
	}
}

func byName(name string, w io.Writer) (io.WriteCloser, error) {
	header := []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3}
	return encoder.Recipe{Encoder: name, Header: header}.NewWriter(w)
}
