package store

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"airlift/bundle"
	"airlift/bundle/head"
	"airlift/installer/host/filesystem"
	"airlift/internal/fault"
	"airlift/internal/space"
	_ "airlift/scripts/fixtures/seed"
	"airlift/scripts/fixtures/smallfs"
	"airlift/scripts/fixtures/testbundle"
)

// sample writes a bundle of some pieces, and returns its path and its bytes. Bundles with other seeds differ.
func sample(t testing.TB, seed uint64) (path string, data []byte) {
	t.Helper()
	random := make([]byte, 5*head.PieceSize+12345)
	source := rand.NewChaCha8([32]byte{byte(seed)})
	_, _ = source.Read(random)
	path = filepath.Join(t.TempDir(), "install")
	m := &bundle.Manifest{FormatVersion: bundle.FormatVersion, Platform: "linux/amd64", KubernetesVersion: "v1.37.1", CNI: "none"}
	executables := bundle.Executables{Launcher: random[:100_000], Installer: random}
	testbundle.WriteFile(t, path, executables, m, bundle.Fastest, nil)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return path, data
}

func open(t testing.TB, path string) *bundle.File {
	t.Helper()
	f, err := bundle.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// A counter counts the bytes that are read.
type counter struct {
	io.ReaderAt
	read atomic.Int64
}

func (c *counter) ReadAt(b []byte, at int64) (int, error) {
	n, err := c.ReaderAt.ReadAt(b, at)
	c.read.Add(int64(n))
	return n, err
}

// openAt opens a bundle in memory. It has no path from which blocks could be shared.
func openAt(t testing.TB, data []byte) (*bundle.File, *counter) {
	t.Helper()
	c := &counter{ReaderAt: bytes.NewReader(data)}
	f, err := bundle.OpenAt(c, int64(len(data)), "memory")
	if err != nil {
		t.Fatal(err)
	}
	c.read.Store(0)
	return f, c
}

func keep(t testing.TB, s *Store, f *bundle.File) (changed bool) {
	t.Helper()
	changed, err := s.Keep(context.Background(), f, nil)
	if err != nil {
		t.Fatal(err)
	}
	return changed
}

// contents returns the files of the store by their names.
func contents(t testing.TB, s *Store) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if files[e.Name()], err = os.ReadFile(filepath.Join(s.dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

func TestKeep(t *testing.T) {
	path, data := sample(t, 1)
	s, f := New(t.TempDir()), open(t, path)
	var done []int64
	changed, err := s.Keep(t.Context(), f, func(n int64) { done = append(done, n) })
	if err != nil || !changed {
		t.Fatalf("%t, %v", changed, err)
	}
	if got := contents(t, s); len(got) != 1 || !bytes.Equal(got[f.ID()], data) {
		t.Errorf("%d files, %d bytes instead of %d", len(got), len(got[f.ID()]), len(data))
	}
	if !slices.IsSorted(done) || len(done) < 5 || done[len(done)-1] > int64(len(data)) {
		t.Errorf("progress: %d", done)
	}
	if info, err := os.Stat(s.path(f.ID())); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if keep(t, s, f) {
		t.Error("a file in place was copied")
	}
	other, _ := sample(t, 2)
	keep(t, s, open(t, other))
	if items, err := s.List(); err != nil || len(items) != 2 || !items[0].Complete || time.Since(items[0].Placed) > time.Hour {
		t.Errorf("%+v, %v", items, err)
	}
	if err := errors.Join(s.Remove(f.ID()), s.Remove(f.ID())); err != nil {
		t.Error(err)
	}
	if items, err := s.List(); err != nil || len(items) != 1 || items[0].ID == f.ID() {
		t.Errorf("%+v, %v", items, err)
	}
	if _, err := s.Open(f.ID(), nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a removed file: %v", err)
	}
}

// A file that a run continued, or found in place, is placed now: the service removes old files that the cluster does not
// list, and a command lists a file after it placed it.
func TestKeepIsNow(t *testing.T) {
	path, data := sample(t, 1)
	s, f := New(t.TempDir()), open(t, path)
	isNew := func(name string) {
		t.Helper()
		if items, err := s.List(); err != nil || len(items) != 1 || time.Since(items[0].Placed) > time.Hour {
			t.Errorf("%s: %+v, %v", name, items, err)
		}
	}
	old := time.Now().Add(-24 * time.Hour)
	for _, name := range []string{s.path(f.ID()) + filesystem.PartialSuffix, s.path(f.ID())} { // a run was killed before its last step
		if err := errors.Join(os.RemoveAll(s.path(f.ID())), os.WriteFile(name, data, 0o600), os.Chtimes(name, old, old)); err != nil {
			t.Fatal(err)
		}
		keep(t, s, f)
		isNew(name)
	}
}

// A file that was removed while it was written does not take the place of another process's unfinished one.
func TestRemovedWhileWritten(t *testing.T) {
	path, _ := sample(t, 1)
	s, f := New(t.TempDir()), open(t, path)
	p, err := filesystem.OpenPartial(t.Context(), s.path(f.ID()))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := s.Remove(f.ID()); err != nil {
		t.Fatal(err)
	}
	other, err := filesystem.OpenPartial(t.Context(), s.path(f.ID()))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := p.Settle(); err == nil {
		t.Error("it was placed")
	}
	if items, err := s.List(); err != nil || len(items) != 1 || items[0].Complete {
		t.Errorf("%+v, %v", items, err)
	}
}

// Names that are no files of the store stay, and are not listed.
func TestOtherNames(t *testing.T) {
	s := New(t.TempDir())
	id := string(bytes.Repeat([]byte("a"), 64))
	for _, name := range []string{"known.json", id[1:], id + "0", "A" + id[1:], "." + id} {
		if err := os.WriteFile(filepath.Join(s.dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Mkdir(filepath.Join(s.dir, id), 0o700), os.Symlink("/etc/passwd", filepath.Join(s.dir, "b"+id[1:]))); err != nil {
		t.Fatal(err)
	}
	if items, err := s.List(); err != nil || len(items) > 0 {
		t.Errorf("%+v, %v", items, err)
	}
	if _, err := s.Open("b"+id[1:], nil); err == nil {
		t.Error("a symbolic link was opened")
	}
}

// A copy that ends anywhere continues: the next run reads from the source only what is missing.
func TestKeepContinues(t *testing.T) {
	_, data := sample(t, 1)
	f, _ := openAt(t, data)
	pieces := f.Payload().Pieces()
	for stop := range pieces - 1 {
		s := New(t.TempDir())
		ctx, cancel := context.WithCancel(t.Context())
		reported := int64(0)
		_, err := s.Keep(ctx, f, func(int64) {
			if reported++; reported > stop {
				cancel()
			}
		})
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("stop after piece %d: %v", stop, err)
		}
		if items, err := s.List(); err != nil || len(items) != 1 || items[0].Complete {
			t.Fatalf("%+v, %v", items, err)
		}
		again, source := openAt(t, data)
		if !keep(t, s, again) || !bytes.Equal(contents(t, s)[f.ID()], data) {
			t.Errorf("stop after piece %d: the file is incomplete", stop)
		}
		if most := (pieces - stop) * head.PieceSize; source.read.Load() > most {
			t.Errorf("stop after piece %d: %d bytes were read again, at most %d are needed", stop, source.read.Load(), most)
		}
		cancel()
	}
}

// Whatever a killed run left behind, the file is complete in the end.
func TestKeepOverAnything(t *testing.T) {
	_, data := sample(t, 1)
	f, _ := openAt(t, data)
	s := New(t.TempDir())
	rapid.Check(t, func(r *rapid.T) {
		left := bytes.Clone(data[:rapid.IntRange(0, len(data)).Draw(r, "size")])
		for range rapid.IntRange(0, 3).Draw(r, "damaged bytes") {
			if len(left) > 0 {
				left[rapid.IntRange(0, len(left)-1).Draw(r, "at")] ^= 1
			}
		}
		left = append(left, make([]byte, rapid.IntRange(0, 1).Draw(r, "more")*1000)...)
		name := rapid.SampledFrom([]string{f.ID(), f.ID() + ".partial"}).Draw(r, "name")
		if name == f.ID() && bytes.Equal(left, data) {
			r.Skip()
		}
		if err := errors.Join(s.Remove(f.ID()), os.WriteFile(filepath.Join(s.dir, name), left, 0o600)); err != nil {
			r.Fatal(err)
		}
		_, err := s.Keep(t.Context(), f, nil)
		if err == nil {
			_, err = s.Repair(t.Context(), f)
		}
		if got := contents(t, s); err != nil || len(got) != 1 || !bytes.Equal(got[f.ID()], data) {
			r.Fatalf("%d files, %v", len(got), err)
		}
	})
}

// A source that changed after it was opened is an error, and nothing gets the name.
func TestDamagedSource(t *testing.T) {
	_, data := sample(t, 1)
	for name, at := range map[string]int{"launcher": 10, "first piece": 120_000, "last piece": len(data) - 600} {
		changing := bytes.Clone(data)
		f, _ := openAt(t, changing)
		changing[at] ^= 1
		s := New(t.TempDir())
		if _, err := s.Keep(t.Context(), f, nil); fault.ExitCode(err) != fault.Bundle {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := s.Open(f.ID(), nil); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: the file is in place, %v", name, err)
		}
	}
}

func TestReadKept(t *testing.T) {
	path, data := sample(t, 1)
	s, f := New(t.TempDir()), open(t, path)
	keep(t, s, f)
	k, err := s.Open(f.ID(), func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	if err := iotest.TestReader(io.NewSectionReader(k, 0, int64(len(data))), data); err != nil {
		t.Error(err)
	}
	if n, err := k.ReadAt(make([]byte, 10), int64(len(data))-3); n != 3 || !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %d, %v", n, err)
	}
	if _, err := k.ReadAt(make([]byte, 10), -1); err == nil {
		t.Error("a negative offset was read")
	}
	if err := k.File.Check(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if !s.Current(k) {
		t.Error("it is not current")
	}
	if err := s.Remove(k.ID); err != nil || s.Current(k) {
		t.Errorf("it is current after its removal, %v", err)
	}
}

// However a file is damaged, a reader gets an error or the right bytes; and Repair needs no more than the damaged pieces.
func TestDamagedFile(t *testing.T) {
	path, data := sample(t, 1)
	s, f := New(t.TempDir()), open(t, path)
	keep(t, s, f)
	rapid.Check(t, func(r *rapid.T) {
		at := rapid.IntRange(0, len(data)-1).Draw(r, "damaged")
		write := func(b byte) {
			file, err := os.OpenFile(s.path(f.ID()), os.O_WRONLY, 0)
			if err == nil {
				_, err = file.WriteAt([]byte{b}, int64(at))
				err = errors.Join(err, file.Close())
			}
			if err != nil {
				r.Fatal(err)
			}
		}
		before := rapid.Bool().Draw(r, "before it is opened")
		if before {
			write(data[at] ^ 1)
		}
		var damaged atomic.Int64
		k, err := s.Open(f.ID(), func(error) { damaged.Add(1) })
		if err != nil {
			write(data[at])
			if !before || at < int(f.Trailer().DigestsOffset()) && at >= int(f.PayloadOffset()) {
				r.Fatal(err)
			}
			return
		}
		defer k.Close()
		if !before {
			write(data[at] ^ 1)
		}
		for range 5 {
			from := rapid.IntRange(max(0, at-300_000), at).Draw(r, "from")
			to := rapid.IntRange(from, min(len(data), at+300_000)).Draw(r, "to")
			b := make([]byte, to-from)
			if n, _ := k.ReadAt(b, int64(from)); !bytes.Equal(b[:n], data[from:from+n]) {
				r.Fatalf("bytes %d to %d: a damaged byte at %d was read", from, from+n, at)
			}
		}
		memory, source := openAt(t, data)
		repaired, err := s.Repair(t.Context(), memory)
		if err != nil || !bytes.Equal(contents(t, s)[f.ID()], data) {
			r.Fatalf("after the repair: %v", err)
		}
		if repaired > head.PieceSize || source.read.Load() > head.PieceSize {
			r.Fatalf("%d bytes were replaced, %d read, for one damaged byte", repaired, source.read.Load())
		}
		if b := make([]byte, len(data)); damaged.Load() > 0 {
			if _, err := k.ReadAt(b, 0); err != nil || !bytes.Equal(b, data) {
				r.Fatalf("after the repair: %v", err)
			}
		}
	})
}

// A file under the ID of another one is not opened.
func TestAnotherFile(t *testing.T) {
	path, _ := sample(t, 1)
	other, _ := sample(t, 2)
	s, f, wrong := New(t.TempDir()), open(t, path), open(t, other)
	keep(t, s, wrong)
	if err := os.Rename(s.path(wrong.ID()), s.path(f.ID())); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Open(f.ID(), nil); fault.ExitCode(err) != fault.Bundle {
		t.Errorf("%v", err)
	}
	if !keep(t, s, f) {
		t.Error("the other file stayed")
	}
}

// Several processes keep one file: one of them copies.
func TestKeepAtOnce(t *testing.T) {
	path, data := sample(t, 1)
	dir := t.TempDir()
	var copied atomic.Int64
	var tasks sync.WaitGroup
	for range 4 {
		tasks.Go(func() {
			changed, err := New(dir).Keep(t.Context(), open(t, path), nil)
			if err != nil {
				t.Error(err)
			}
			if changed {
				copied.Add(1)
			}
		})
	}
	tasks.Wait()
	if got := contents(t, New(dir)); copied.Load() != 1 || len(got) != 1 || !bytes.Equal(got[open(t, path).ID()], data) {
		t.Errorf("%d copied, %d files", copied.Load(), len(got))
	}
}

func TestNoRoom(t *testing.T) {
	path, data := sample(t, 1)
	for _, size := range []int{len(data) / 2, len(data) + 1<<20} { // it never takes the last of a disk that etcd may use
		s := New(smallfs.Small(t, int64(size)&^4095))
		f := open(t, path)
		if _, err := s.Keep(t.Context(), f, nil); err == nil || fault.Hint(err) == "" {
			t.Errorf("%d bytes: %v, hint %q", size, err, fault.Hint(err))
		}
		if _, err := s.Open(f.ID(), nil); !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	}
}

// On a file system that can share blocks, a kept file needs no space.
func TestKeepSharesBlocks(t *testing.T) {
	dir := smallfs.Sharing(t)
	_, data := sample(t, 1)
	path, s := filepath.Join(dir, "install"), New(filepath.Join(dir, "kept"))
	if err := errors.Join(os.WriteFile(path, data, 0o600), os.Mkdir(s.dir, 0o700)); err != nil {
		t.Fatal(err)
	}
	unix.Sync()
	before, err := space.Free(dir)
	if err != nil {
		t.Fatal(err)
	}
	f := open(t, path)
	keep(t, s, f)
	after, err := space.Free(dir)
	if used := before - after; err != nil || used > int64(len(data)/4) || !bytes.Equal(contents(t, s)[f.ID()], data) {
		t.Errorf("%d of %d bytes were used, %v", used, len(data), err)
	}
}
