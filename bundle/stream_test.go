package bundle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"airlift/bundle/head"
)

// many is a bundle with more entries than a decoder has ahead.
func many(t *testing.T) (*sample, *File) {
	t.Helper()
	s := newSample()
	for i := range 24 {
		name := fmt.Sprintf("bin/binary-%03d", i)
		s.binary(name, 700+i)
		s.manifest.Components[1].Entries = append(s.manifest.Components[1].Entries, name)
	}
	s.binary("bin/unread", 768<<10) // longer than any buffer
	s.manifest.Components[1].Entries = append(s.manifest.Components[1].Entries, "bin/unread")
	return s, openFile(t, s.write(t))
}

// If the caller reads all, a part or nothing of each entry, the stream continues to its end,
// and the content is correct.
func TestReadingSomeOfEveryEntry(t *testing.T) {
	s, f := many(t)
	for _, part := range []int{0, 1, 600, 1 << 20} {
		st, err := f.Stream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for {
			e, r, err := st.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, e.Name)
			got, err := io.ReadAll(io.LimitReader(r, int64(part)))
			if want := s.content[e.Name]; err != nil || !bytes.Equal(got, want[:min(part, len(want))]) {
				t.Errorf("%d bytes of %s: %d other bytes, %v", part, e.Name, len(got), err)
			}
		}
		if len(names) != len(s.manifest.Entries) {
			t.Errorf("%d bytes of each: %d entries, want %d", part, len(names), len(s.manifest.Entries))
		}
		st.Close()
	}
}

// wanting returns a stream that skips all entries but the named ones.
func wanting(t *testing.T, f *File, names ...string) *Stream {
	t.Helper()
	st, err := f.Stream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	st.Skip(func(e Entry) bool { return !slices.Contains(names, e.Name) })
	return st
}

// wantEntries reads exactly the named entries from the stream, in the manifest's order, and
// returns the error after them.
func wantEntries(t *testing.T, s *sample, st *Stream, names ...string) error {
	t.Helper()
	for i := range names {
		e, r, err := st.Next()
		if err != nil {
			t.Fatalf("entry %d: %v", i, err)
		}
		got, err := io.ReadAll(r)
		if err != nil || !slices.Contains(names, e.Name) || !bytes.Equal(got, s.content[e.Name]) {
			t.Errorf("%s: %d bytes, %v", e.Name, len(got), err)
		}
	}
	_, _, err := st.Next()
	return err
}

func TestSkip(t *testing.T) {
	s, f := many(t)
	wanted := []string{"bin/binary-020", "cni/bridge", "bin/unread", BlobName(s.manifest.Images[0].Layers[0].DiffID)}
	if err := wantEntries(t, s, wanting(t, f, wanted...), wanted...); err != io.EOF {
		t.Errorf("after the last: %v", err)
	}
}

// A watched file records which of its bytes were read.
type watched struct {
	file io.ReaderAt
	read []bool
}

func (w *watched) ReadAt(b []byte, at int64) (int, error) {
	n, err := w.file.ReadAt(b, at)
	for i := range n {
		w.read[at+int64(i)] = true
	}
	return n, err
}

// No byte of a part without wanted entries is read, except in pieces that it shares with its
// neighbours. The installer is not read either.
func TestSkippedPartsAreNotRead(t *testing.T) {
	s := large()
	path := s.write(t)
	f := openFile(t, path)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// inner is a piece of the payload in the middle of the part.
	inner := func(name string) (from, to int64) {
		p := f.part(name)
		from = f.PayloadOffset() + (p.Offset+p.Size/2-f.PayloadOffset())/head.PieceSize*head.PieceSize
		if to = from + head.PieceSize; from < p.Offset || to > p.Offset+p.Size {
			t.Fatalf("the part %q is too small", name)
		}
		return from, to
	}
	layers := []string{BlobName(s.manifest.Images[0].Layers[0].DiffID), BlobName(s.manifest.Images[2].Layers[0].DiffID)}
	tools := []string{"bin/kubelet", "cni/bridge"}
	for name, c := range map[string]struct {
		wanted []string
		parts  map[string]bool
	}{
		"images":   {layers, map[string]bool{ImagesPart: true, BinariesPart: false}},
		"binaries": {tools, map[string]bool{ImagesPart: false, BinariesPart: true}},
		"both":     {append(tools, layers...), map[string]bool{ImagesPart: true, BinariesPart: true}},
		"nothing":  {nil, map[string]bool{ImagesPart: false, BinariesPart: false}},
	} {
		t.Run(name, func(t *testing.T) {
			damaged := bytes.Clone(whole)
			for part, read := range c.parts {
				if from, to := inner(part); !read {
					clear(damaged[from:to])
				}
			}
			path := filepath.Join(t.TempDir(), "install")
			if err := os.WriteFile(path, damaged, 0o755); err != nil {
				t.Fatal(err)
			}
			f := openFile(t, path)
			w := &watched{f.file, make([]bool, len(whole))}
			if f.payload, err = head.OpenPayload(w, path, f.trailer); err != nil {
				t.Fatal(err)
			}
			if err := wantEntries(t, s, wanting(t, f, c.wanted...), c.wanted...); err != io.EOF {
				t.Errorf("after the last: %v", err)
			}
			for part, read := range c.parts {
				from, to := inner(part)
				if slices.Contains(w.read[from:to], !read) {
					t.Errorf("%s: read: %t, want %t", part, w.read[from], read)
				}
			}
			// A stream of all entries finds the damage.
			st, err := f.Stream(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer st.Close()
			if err := readAll(st); name != "both" {
				wantFault(t, err, "of the file do not match their sha256")
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}

// One decoder reads all parts, also after it left a part early.
func TestPartsOfDifferentWindows(t *testing.T) {
	s := newSample()
	s.binary("bin/large", 5<<20)
	s.manifest.Components[1].Entries = append(s.manifest.Components[1].Entries, "bin/large")
	layer := s.layer(3 << 20)
	s.image("large", "example.com/large:v1", false, layer)
	f := openFile(t, s.write(t))
	for range 3 {
		for _, wanted := range [][]string{{"bin/large"}, {BlobName(layer.DiffID)}, {"bin/runc", BlobName(layer.DiffID)}} {
			if err := wantEntries(t, s, wanting(t, f, wanted...), wanted...); err != io.EOF {
				t.Errorf("after the last: %v", err)
			}
		}
	}
	if err := f.Verify(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

// After a stream is closed no goroutine remains, also after its context was cancelled.
func TestNoGoroutineStays(t *testing.T) {
	_, f := many(t)
	if _, err := f.Manifest(); err != nil {
		t.Fatal(err)
	}
	before := runtime.NumGoroutine()
	for entries := range 12 {
		ctx, cancel := context.WithCancel(t.Context())
		st, err := f.Stream(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for range entries {
			_, r, err := st.Next()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.CopyN(io.Discard, r, 10); err != nil && err != io.EOF {
				t.Fatal(err)
			}
		}
		if entries%2 == 1 {
			cancel()
			if _, _, err := st.Next(); !errors.Is(err, context.Canceled) {
				t.Errorf("after cancelling: %v", err)
			}
		}
		st.Close()
		cancel()
	}
	for deadline := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			buf := make([]byte, 1<<16)
			t.Fatalf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
		}
	}
}
