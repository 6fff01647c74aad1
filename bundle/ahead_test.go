package bundle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
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

func TestSkip(t *testing.T) {
	s, f := many(t)
	// A damaged entry that nobody wants does not show before the end, where the
	// checksum of zstd tells.
	flipContent(t, f.path, s.content["bin/kubelet"])
	wanted := []string{s.manifest.Images[0].Layers[0].DiffID, "bin/program-030", "cni/bridge", "bin/unread"}
	wanted[0] = BlobName(wanted[0])
	st, err := f.Stream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	st.Skip(func(e Entry) bool {
		for _, name := range wanted {
			if e.Name == name {
				return false
			}
		}
		return true
	})
	for want := range wanted {
		// In the manifest's order.
		e, r, err := st.Next()
		if err != nil {
			t.Fatalf("entry %d: %v", want, err)
		}
		got, err := io.ReadAll(r)
		if err != nil || !strings.Contains(strings.Join(wanted, " "), e.Name) || !bytes.Equal(got, s.content[e.Name]) {
			t.Errorf("%s: %d bytes, %v", e.Name, len(got), err)
		}
	}
	_, _, err = st.Next()
	wantFault(t, err, "CRC check failed")
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
