package bundle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"airlift/bundle/head"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/seed"
)

// thinOf writes the sample and its thin file, and returns both.
func thinOf(t testing.TB, s *sample) (whole, thin []byte) {
	t.Helper()
	f := openFile(t, s.write(t))
	path := filepath.Join(t.TempDir(), "thin")
	size, err := WriteThin(t.Context(), f, path)
	if err != nil {
		t.Fatal(err)
	}
	if whole, err = os.ReadFile(f.Path()); err != nil {
		t.Fatal(err)
	}
	if thin, err = os.ReadFile(path); err != nil || int64(len(thin)) != size {
		t.Fatalf("%d bytes, not %d: %v", len(thin), size, err)
	}
	if i, err := os.Stat(path); err != nil || i.Mode() != 0o755 {
		t.Errorf("mode %s, %v", i.Mode(), err)
	}
	return whole, thin
}

func openBytes(t testing.TB, b []byte) *File {
	t.Helper()
	f, err := OpenAt(bytes.NewReader(b), int64(len(b)), "thin")
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestThinFile(t *testing.T) {
	s := large()
	whole, thin := thinOf(t, s)
	full, f := openBytes(t, whole), openBytes(t, thin)

	// FORMAT.md: 0 to P+K, and P+L to the end. The head of the sample is less than a piece.
	p, l := int(full.PayloadOffset()), int(full.PayloadSize())
	want := append(bytes.Clone(whole[:p+head.PieceSize]), whole[p+l:]...)
	if !bytes.Equal(thin, want) {
		t.Fatalf("the thin file has %d bytes, want %d", len(thin), len(want))
	}
	if full.Thin() || !f.Thin() || f.ID() != full.ID() || !f.SameContent(full) || f.Size() != int64(len(thin)) || f.WholeSize() != int64(len(whole)) {
		t.Errorf("thin: %t, ID %s, %d of %d bytes", f.Thin(), f.ID(), f.Size(), f.WholeSize())
	}
	if trailer := whole[len(whole)-head.TrailerSize:]; f.ID() != sha(trailer) {
		t.Errorf("ID %s, want %s", f.ID(), sha(trailer))
	}
	if err := errors.Join(f.Check(t.Context(), nil), f.Verify(t.Context(), nil)); err != nil {
		t.Error(err)
	}
	if got, want := f.CheckSize(), int64(p-head.HeaderSize+head.PieceSize); got != want {
		t.Errorf("%d bytes are checked, want %d", got, want)
	}
	if got, err := io.ReadAll(f.Reader()); err != nil || !bytes.Equal(got, thin) {
		t.Errorf("Reader: %d bytes, %v", len(got), err)
	}
	m, err := f.Manifest()
	if err != nil || !reflect.DeepEqual(m, s.manifest) {
		t.Errorf("manifest %v, %v", m, err)
	}
	var installer bytes.Buffer
	if err := f.CopyInstaller(t.Context(), &installer); err != nil || !bytes.Equal(installer.Bytes(), executables().Installer) {
		t.Errorf("installer of %d bytes, %v", installer.Len(), err)
	}
}

func TestThinFileNeedsASource(t *testing.T) {
	s := large()
	whole, thin := thinOf(t, s)
	f := openBytes(t, thin)
	entries := func() error {
		st, err := f.Stream(t.Context())
		if err != nil {
			return err
		}
		defer st.Close()
		for {
			e, r, err := st.Next()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			if b, err := io.ReadAll(r); err != nil || !bytes.Equal(b, s.content[e.Name]) {
				return fmt.Errorf("%s: %d bytes, %w", e.Name, len(b), err)
			}
		}
	}
	missing := func(err error) {
		t.Helper()
		wantFault(t, err, "thin is a thin file: it does not have bytes ")
		if strings.Contains(err.Error(), "damaged") || !strings.Contains(fault.Hint(err), "use the whole file") {
			t.Errorf("%v; hint %q", err, fault.Hint(err))
		}
	}
	missing(entries())
	f.Attach(bytes.NewReader(whole))
	if err := entries(); err != nil {
		t.Error(err)
	}
	if got, err := io.ReadAll(io.NewSectionReader(f.content, 0, f.WholeSize())); err != nil || !bytes.Equal(got, whole) {
		t.Errorf("%d of %d bytes, %v", len(got), len(whole), err)
	}
	f.Attach(nil)
	missing(entries())
	if err := f.NeedsWhole(); fault.ExitCode(err) != fault.Usage || fault.Hint(err) == "" {
		t.Errorf("%v", err)
	}
}

// No byte of another bundle or of a damaged source gets through, and the thin file is not called damaged.
func TestThinFileComparesItsSource(t *testing.T) {
	whole, thin := thinOf(t, large())
	first := int(openBytes(t, thin).PayloadOffset()) + head.PieceSize
	elsewhere, err := os.ReadFile(newSample().write(t))
	if err != nil {
		t.Fatal(err)
	}
	elsewhere = bytes.Repeat(elsewhere, 1+len(whole)/len(elsewhere))
	flipped := bytes.Clone(whole)
	flipped[first+rand.New(rand.NewPCG(seed.Value(t), 0)).IntN(len(whole)-len(thin))] ^= 4
	broken := errors.New("the cable was cut")
	for name, c := range map[string]struct {
		source io.ReaderAt
		want   string
	}{
		"another bundle":  {bytes.NewReader(elsewhere), "do not match their sha256"},
		"a flipped bit":   {bytes.NewReader(flipped), "do not match their sha256"},
		"a short file":    {bytes.NewReader(whole[:len(thin)]), "EOF"},
		"a failed source": {readerFunc(func([]byte, int64) (int, error) { return 0, fault.New(fault.Preflight, "%w", broken).Hint("repair it") }), broken.Error()},
	} {
		f := openBytes(t, thin)
		f.Attach(c.source)
		st, err := f.Stream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		err = readAll(st)
		st.Close()
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "damaged") {
			t.Errorf("%s: %v", name, err)
		}
		if errors.Is(err, broken) && (fault.ExitCode(err) != fault.Preflight || fault.Hint(err) != "repair it") {
			t.Errorf("%s: exit code %d, hint %q", name, fault.ExitCode(err), fault.Hint(err))
		}
		if err := f.Check(t.Context(), nil); err != nil {
			t.Errorf("%s: the thin file itself: %v", name, err)
		}
	}
}

type readerFunc func([]byte, int64) (int, error)

func (r readerFunc) ReadAt(b []byte, at int64) (int, error) { return r(b, at) }

func TestWriteThin(t *testing.T) {
	whole, thin := thinOf(t, large())
	f := openBytes(t, thin)
	path := filepath.Join(t.TempDir(), "again")
	if _, err := WriteThin(t.Context(), f, path); err != nil {
		t.Fatal(err)
	}
	if again, err := os.ReadFile(path); err != nil || !bytes.Equal(again, thin) {
		t.Errorf("a thin file of a thin file: %d bytes, %v", len(again), err)
	}
	// It replaces neither a whole bundle nor a thin one.
	for _, content := range [][]byte{whole, thin} {
		if err := os.WriteFile(path, content, 0o755); err != nil {
			t.Fatal(err)
		}
		_, err := WriteThin(t.Context(), f, path)
		if fault.ExitCode(err) != fault.Usage || !strings.Contains(err.Error(), "is a bundle") {
			t.Errorf("over a bundle: %v", err)
		}
		if got, _ := os.ReadFile(path); !bytes.Equal(got, content) {
			t.Error("the bundle was changed")
		}
	}
	// A damaged bundle has no thin file, and an error leaves nothing.
	damaged := bytes.Clone(whole)
	damaged[int(f.PayloadOffset())+5] ^= 1
	dir := t.TempDir()
	if _, err := WriteThin(t.Context(), openBytes(t, damaged), filepath.Join(dir, "thin")); fault.ExitCode(err) != fault.Bundle {
		t.Errorf("of a damaged bundle: %v", err)
	}
	if list, _ := os.ReadDir(dir); len(list) > 0 {
		t.Errorf("left: %v", list)
	}
	// A bundle whose head ends in its last piece is its own thin file.
	small, same := thinOf(t, newSample())
	if !bytes.Equal(small, same) || openBytes(t, same).Thin() {
		t.Errorf("%d bytes, thin %d", len(small), len(same))
	}
}

// As for a whole file, every change is an error of the bundle.
func TestEveryChangeOfAThinFileIsFound(t *testing.T) {
	_, thin := thinOf(t, large())
	verify := func(b []byte) error {
		f, err := OpenAt(bytes.NewReader(b), int64(len(b)), "thin")
		if err != nil {
			return err
		}
		return errors.Join(f.Check(t.Context(), nil), f.Verify(t.Context(), nil))
	}
	if err := verify(thin); err != nil {
		t.Fatal(err)
	}
	for size := range len(thin) {
		if size > 1000 && size < len(thin)-1000 && size%997 != 0 {
			continue
		}
		if err := verify(thin[:size]); fault.ExitCode(err) != fault.Bundle {
			t.Fatalf("%d of %d bytes: %v", size, len(thin), err)
		}
	}
	for more := 1; more < 1000; more += 7 {
		if err := verify(append(bytes.Clone(thin), make([]byte, more)...)); fault.ExitCode(err) != fault.Bundle {
			t.Fatalf("%d bytes more: %v", more, err)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		b := bytes.Clone(thin)
		at := rapid.IntRange(0, len(b)-1).Draw(t, "at")
		b[at] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		if err := verify(b); fault.ExitCode(err) != fault.Bundle || fault.Hint(err) == "" {
			t.Fatalf("byte %d of %d flipped: %v", at, len(thin), err)
		}
	})
}

// A reader with a source reads as bytes.Reader does.
func TestThinReadsAnyRange(t *testing.T) {
	whole, thin := thinOf(t, large())
	f := openBytes(t, thin)
	f.Attach(bytes.NewReader(whole))
	rapid.Check(t, func(t *rapid.T) {
		at := rapid.Int64Range(0, int64(len(whole))+10).Draw(t, "at")
		got := make([]byte, rapid.IntRange(0, len(whole)).Draw(t, "size"))
		want := make([]byte, len(got))
		n, err := f.content.ReadAt(got, at)
		m, wantErr := bytes.NewReader(whole).ReadAt(want, at)
		if n != m || (err == nil) != (wantErr == nil) && len(got) > 0 || !bytes.Equal(got, want) {
			t.Fatalf("%d bytes at %d: %d and %v, want %d and %v", len(got), at, n, err, m, wantErr)
		}
	})
}

// For any bytes: no panic, and only the bundle and its thin file verify.
func FuzzThin(f *testing.F) {
	whole, thin := thinOf(f, large())
	f.Add(thin)
	f.Add(thin[:len(thin)-1])
	f.Add(append(bytes.Clone(thin), 0))
	f.Add(whole[:len(thin)])
	f.Fuzz(func(t *testing.T, b []byte) {
		err := check(t, b)
		if err == nil && !bytes.Equal(b, whole) && !bytes.Equal(b, thin) {
			t.Error("another file verifies")
		}
		if err != nil && fault.ExitCode(err) != fault.Bundle {
			t.Errorf("exit code %d: %v", fault.ExitCode(err), err)
		}
	})
}

// A stream that waits for its source ends when it is cancelled.
func TestCancelledSource(t *testing.T) {
	_, thin := thinOf(t, large())
	f := openBytes(t, thin)
	waiting := make(chan struct{})
	f.Attach(blockedSource{waiting: waiting})
	ctx, cancel := context.WithCancel(t.Context())
	st, err := f.Stream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		<-waiting
		cancel()
	}()
	if err := readAll(st); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	st.Close() // waits for the goroutine that reads
}

// A blockedSource never has a byte.
type blockedSource struct {
	io.ReaderAt
	waiting chan struct{}
}

func (b blockedSource) ReadVerified(ctx context.Context, _ []byte, _ int64, _ func([]byte) bool) error {
	close(b.waiting)
	<-ctx.Done()
	return ctx.Err()
}

// No trailer, with a correct checksum, makes a thin file be read beyond its bytes.
func TestForgedTrailersOfThinFiles(t *testing.T) {
	_, thin := thinOf(t, large())
	good, err := head.DecodeTrailer(thin[len(thin)-head.TrailerSize:])
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		field := func(name string, now uint64) uint64 {
			near := rapid.Uint64Range(0, 2*head.PieceSize).Draw(t, name+" near")
			return rapid.SampledFrom([]uint64{now, now, now + near, now - near, near, 1<<40 - near, 1<<62 + near, -near}).Draw(t, name)
		}
		tr := good
		tr.PayloadOffset, tr.PayloadSize = field("P", good.PayloadOffset), field("L", good.PayloadSize)
		tr.HeadSize, tr.BinariesSize = field("H", good.HeadSize), field("B", good.BinariesSize)
		forged := append(bytes.Clone(thin[:len(thin)-head.TrailerSize]), tr.Encode()...)
		// The size that the trailer expects, if that is possible.
		if want := tr.ThinSize(); want > head.TrailerSize && want < int64(len(thin))*2 {
			forged = append(make([]byte, want-head.TrailerSize), tr.Encode()...)
			copy(forged[:want-head.TrailerSize], thin)
		}
		f, err := OpenAt(bytes.NewReader(forged), int64(len(forged)), "thin")
		if err == nil {
			err = errors.Join(f.Check(context.Background(), nil), f.Verify(context.Background(), nil))
		}
		if (tr != good || !bytes.Equal(forged, thin)) && fault.ExitCode(err) != fault.Bundle {
			// Only the size of a part that is not in the file is not checked.
			same := tr
			same.BinariesSize = good.BinariesSize
			if err != nil || same != good {
				t.Fatalf("%+v: %v", tr, err)
			}
		}
	})
}
