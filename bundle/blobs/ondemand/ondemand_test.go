package ondemand

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"airlift/bundle"
	"airlift/bundle/blobs"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/smallfs"
	"airlift/scripts/fixtures/testbundle"
)

// fixture writes a bundle of one image, and returns its layers.
func fixture(t *testing.T, layers ...testbundle.CompressedLayer) []Blob {
	t.Helper()
	b := testbundle.NewImages()
	img := b.AddCompressed(t, "registry.example/app:v1", layers...)
	file := b.Write(t, "file").File
	of, err := blobs.Open(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	var list []Blob
	for n, l := range layers {
		blob := l.Blob(t)
		d := bundle.Descriptor{Digest: "sha256:" + testbundle.Sum(blob), Size: int64(len(blob))}
		list = append(list, Blob{Source: of.Source(img.Reference, img.Layers[n], d), File: file})
	}
	return list
}

func layer(text string, size int) testbundle.CompressedLayer {
	return testbundle.CompressedLayer{Tar: bytes.Repeat([]byte(text), size/len(text)+1)[:size], Encoder: "go-gzip-6"}
}

func open(t *testing.T, limit int64) *Store {
	t.Helper()
	s := New(Options{Dir: t.TempDir(), Limit: limit, Log: slog.New(slog.DiscardHandler)})
	if err := s.Open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// fetch reads a blob and compares it with its digest.
func fetch(ctx context.Context, s *Store, b Blob) error {
	c, err := s.Get(ctx, b)
	if err != nil {
		return err
	}
	defer c.Close()
	content, err := io.ReadAll(c.From(ctx, 0))
	if err == nil && "sha256:"+testbundle.Sum(content) != b.Source.Digest {
		err = fmt.Errorf("%d other bytes", len(content))
	}
	return err
}

// kept returns the names of the files of layers.
func (s *Store) kept(t *testing.T) map[string]bool {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(s.Dir, "layers"))
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, e := range entries {
		names["sha256:"+e.Name()] = true
	}
	return names
}

// The blobs that were not used for longest go first. A blob that is larger than the limit is made, and not kept.
func TestLimit(t *testing.T) {
	plain := func(text string, size int) testbundle.CompressedLayer {
		l := layer(text, size)
		l.Encoder = ""
		return l
	}
	list := fixture(t, plain("a", 1000), plain("b", 1000), plain("c", 1000), plain("d", 5000))
	s := open(t, 2500)
	check := func(want ...int) {
		t.Helper()
		kept := s.kept(t)
		for _, n := range want {
			if !kept[list[n].Source.Digest] {
				t.Errorf("blob %d is not kept", n)
			}
		}
		if len(kept) != len(want) {
			t.Errorf("kept %v, want %v", kept, want)
		}
	}
	for _, step := range []struct {
		get  int
		want []int
	}{{0, []int{0}}, {1, []int{0, 1}}, {0, []int{0, 1}}, {2, []int{0, 2}}, {3, nil}} {
		if err := fetch(t.Context(), s, list[step.get]); err != nil {
			t.Fatal(err)
		}
		check(step.want...)
	}
	if s.layers.size != 0 || s.layers.reserved != 0 {
		t.Errorf("size %d, reserved %d", s.layers.size, s.layers.reserved)
	}
}

// While there is no room, callers wait, and are served when there is.
func TestManyBlobsInLittleRoom(t *testing.T) {
	var layers []testbundle.CompressedLayer
	for n := range 12 {
		layers = append(layers, layer(fmt.Sprintf("layer %d ", n), 100_000))
	}
	list := fixture(t, layers...)
	s := open(t, 250_000) // two at a time
	var callers sync.WaitGroup
	for range 3 {
		for _, b := range list {
			callers.Go(func() {
				if err := fetch(t.Context(), s, b); err != nil {
					t.Error(err)
				}
			})
		}
	}
	callers.Wait()
	if s.layers.reserved != 0 || len(s.jobs) != 0 {
		t.Errorf("reserved %d, jobs %d", s.layers.reserved, len(s.jobs))
	}
}

// A client that waits for room may give up, and the other clients go on.
func TestNoPatience(t *testing.T) {
	list := fixture(t, layer("a", 1000), layer("b", 1000))
	synctest.Test(t, func(t *testing.T) {
		s := open(t, 1<<20)
		s.layers.reserved = 1 << 20 // another job has all the room
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := fetch(ctx, s, list[0]); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if len(s.jobs)+len(s.waiting) != 0 {
			t.Errorf("%d jobs, %d wait", len(s.jobs), len(s.waiting))
		}
		s.layers.reserved = 0
		if err := fetch(t.Context(), s, list[1]); err != nil {
			t.Error(err)
		}
		s.Close()
	})
}

// A pass ends when nothing needs it any more, and takes its decoder with it.
func TestIdle(t *testing.T) {
	list := fixture(t, layer("a", 1000))
	synctest.Test(t, func(t *testing.T) {
		s := open(t, 1<<20)
		if err := fetch(t.Context(), s, list[0]); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * idle)
		synctest.Wait()
		if s.pass != nil {
			t.Error("a bundle is still being read")
		}
		s.Close()
	})
}

// When the last caller is gone, nothing of the job is left; another caller goes on.
func TestLeave(t *testing.T) {
	list := fixture(t, layer("a", 3_000_000), layer("b", 3_000_000))
	s := open(t, 1<<30)
	for _, b := range list {
		for _, others := range []bool{false, true} {
			ctx, cancel := context.WithCancel(t.Context())
			c, err := s.Get(ctx, b)
			if err != nil {
				t.Fatal(err)
			}
			var second *Content
			if others {
				if second, err = s.Get(t.Context(), b); err != nil {
					t.Fatal(err)
				}
			}
			cancel()
			if _, err := io.ReadAll(c.From(ctx, 0)); c.file == nil && err == nil {
				t.Error("a cancelled caller read everything")
			}
			c.Close()
			if others {
				content, err := io.ReadAll(second.From(t.Context(), 0))
				if err != nil || "sha256:"+testbundle.Sum(content) != b.Source.Digest {
					t.Errorf("%d bytes, %v", len(content), err)
				}
				second.Close()
			}
		}
	}
	s.Close()
	if s.layers.reserved != 0 || len(s.jobs) != 0 || len(s.waiting) != 0 {
		t.Errorf("reserved %d, jobs %d, %d wait", s.layers.reserved, len(s.jobs), len(s.waiting))
	}
	for name := range s.kept(t) {
		if filepath.Ext(name) == partial {
			t.Errorf("%s is left", name)
		}
	}
}

// After Retain, another bundle is not read any more.
func TestRetain(t *testing.T) {
	list := fixture(t, layer("a", 20_000_000))
	s := open(t, 1<<30)
	c, err := s.Get(t.Context(), list[0])
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s.Retain(nil, nil)
	s.mu.Lock()
	if s.pass != nil {
		t.Error("the bundle is still being read")
	}
	s.mu.Unlock()
	list[0].File.Close()
	_, _ = io.Copy(io.Discard, c.From(t.Context(), 0)) // it ends, with what the spool has or with an error
}

// Every caller of Close, and every reader, comes back.
func TestClose(t *testing.T) {
	list := fixture(t, layer("a", 20_000_000))
	s := open(t, 1<<30)
	c, err := s.Get(t.Context(), list[0])
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	if _, err := io.Copy(io.Discard, c.From(t.Context(), 0)); c.file == nil && err == nil {
		t.Log("the blob was complete before")
	}
	c.Close()
	if err := fetch(t.Context(), s, list[0]); !errors.Is(err, errClosed) && err != nil {
		t.Error(err)
	}
}

// A file system that is almost full loses what is kept, and then refuses a blob; it is never filled.
func TestNoSpace(t *testing.T) {
	dir := smallfs.Small(t, spare+(1<<20))
	list := fixture(t, layer("a", 100_000), layer("b", 100_000))
	s := New(Options{Dir: dir, Limit: 1 << 30, Log: slog.New(slog.DiscardHandler)})
	defer s.Close()
	if err := s.Open(); err != nil {
		t.Fatal(err)
	}
	if err := fetch(t.Context(), s, list[0]); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "other"), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	err := fetch(t.Context(), s, list[1])
	if err == nil || fault.Hint(err) != "free some space there: df "+filepath.Join(dir, "layers") {
		t.Errorf("%v, %q", err, fault.Hint(err))
	}
	if kept := s.kept(t); len(kept) != 0 {
		t.Errorf("kept %v", kept)
	}
	if err := os.Remove(filepath.Join(dir, "other")); err != nil {
		t.Fatal(err)
	}
	if err := fetch(t.Context(), s, list[1]); err != nil {
		t.Error(err)
	}
}
