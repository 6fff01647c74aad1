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
)

// many is a bundle of more entries than pieces get ahead.
func many(t *testing.T) (*sample, *File) {
	t.Helper()
	s := newSample()
	for i := range 3 * piecesAhead {
		name := fmt.Sprintf("bin/program-%03d", i)
		s.program(name, 700+i)
		s.manifest.Components[1].Entries = append(s.manifest.Components[1].Entries, name)
	}
	s.program("bin/unread", 3*pieceSize) // longer than one piece
	s.manifest.Components[1].Entries = append(s.manifest.Components[1].Entries, "bin/unread")
	return s, openFile(t, s.write(t))
}

// Whatever a caller reads of each entry, all, some or nothing, the stream goes
// on to the end, and what is read is right.
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

// wanting makes a stream that skips what is not named.
func wanting(t *testing.T, f *File, tee io.Writer, names ...string) *Stream {
	t.Helper()
	st, err := f.stream(t.Context(), tee)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	st.Skip(func(e Entry) bool { return !slices.Contains(names, e.Name) })
	return st
}

// wantEntries reads exactly the entries called names from the stream, in the
// manifest's order, and then the error that follows.
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
	wanted := []string{"bin/program-020", "cni/bridge", "bin/unread", BlobName(s.manifest.Images[0].Layers[0].DiffID)}
	if err := wantEntries(t, s, wanting(t, f, io.Discard, wanted...), wanted...); err != io.EOF {
		t.Errorf("after the last: %v", err)
	}
	// A damaged entry is nothing to who does not want it, and is found by who does.
	flipContent(t, f.path, s.content["bin/kubelet"])
	if err := wantEntries(t, s, wanting(t, f, io.Discard, wanted[:2]...), wanted[:2]...); err != io.EOF {
		t.Errorf("after the last: %v", err)
	}
	damaged := wanting(t, f, io.Discard, "bin/kubelet")
	_, r, err := damaged.Next()
	if err == nil {
		_, err = io.Copy(io.Discard, r)
	}
	wantFault(t, err, `entry "bin/kubelet": its sha256 is`)
}

// Of a part of which nothing is wanted not a byte is read, nor is the installer.
func TestSkippedPartsAreNotRead(t *testing.T) {
	s := newSample()
	path := s.write(t)
	f := openFile(t, path)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	bytesOf := func(name string) []byte { p := f.part(name); return whole[p.Offset : p.Offset+p.Size] }
	layers := []string{BlobName(s.manifest.Images[0].Layers[0].DiffID), BlobName(s.manifest.Images[1].Layers[1].DiffID)}
	tools := []string{"bin/kubelet", "cni/bridge"}
	for name, c := range map[string]struct {
		wanted []string
		parts  []string
		broken []string
	}{
		"images":   {layers, []string{ImagesPart}, []string{ProgramsPart}},
		"programs": {tools, []string{ProgramsPart}, []string{ImagesPart}},
		"both":     {append(tools, layers...), []string{ProgramsPart, ImagesPart}, nil},
		"nothing":  {nil, nil, []string{ProgramsPart, ImagesPart}},
	} {
		t.Run(name, func(t *testing.T) {
			damaged := bytes.Clone(whole)
			for _, part := range c.broken {
				p := f.part(part)
				clear(damaged[p.Offset : p.Offset+p.Size])
			}
			damaged[bytes.Index(damaged, programs().Installer[1000:1064])] ^= 1
			path := filepath.Join(t.TempDir(), "install")
			if err := os.WriteFile(path, damaged, 0o755); err != nil {
				t.Fatal(err)
			}
			f := openFile(t, path)
			var read bytes.Buffer
			if err := wantEntries(t, s, wanting(t, f, &read, c.wanted...), c.wanted...); err != io.EOF {
				t.Errorf("after the last: %v", err)
			}
			var want []byte
			for _, part := range c.parts {
				want = append(want, bytesOf(part)...)
			}
			if !bytes.Equal(read.Bytes(), want) {
				t.Errorf("%d bytes were read, want %d", read.Len(), len(want))
			}
			// Who wants everything finds the damage.
			st, err := f.Stream(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer st.Close()
			wantFault(t, readAll(st), `entry "install": its sha256`)
		})
	}
	for _, part := range []string{ProgramsPart, ImagesPart} {
		damaged := bytes.Clone(whole)
		p := f.part(part)
		clear(damaged[p.Offset : p.Offset+p.Size])
		wantFault(t, check(t, damaged), fmt.Sprintf("its payload's part %q: ", part))
	}
}

// One decoder goes from part to part, wherever it was left.
func TestPartsOfDifferentWindows(t *testing.T) {
	s := newSample()
	s.program("bin/large", 5<<20)
	s.manifest.Components[1].Entries = append(s.manifest.Components[1].Entries, "bin/large")
	layer := s.layer(3 << 20)
	s.image("large", "example.com/large:v1", false, layer)
	f := openFile(t, s.write(t))
	for range 3 {
		for _, wanted := range [][]string{{"bin/large"}, {BlobName(layer.DiffID)}, {"bin/runc", BlobName(layer.DiffID)}} {
			if err := wantEntries(t, s, wanting(t, f, io.Discard, wanted...), wanted...); err != io.EOF {
				t.Errorf("after the last: %v", err)
			}
		}
	}
	if err := f.Verify(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

// Whenever a stream is left, no goroutine stays behind: not while the one that
// unpacks has got ahead as far as it may, nor when its context has ended.
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
