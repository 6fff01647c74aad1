package bundle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"airlift/bundle/head"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/rig"
)

func TestWrittenFileReadsBack(t *testing.T) {
	s := newSample()
	f := openFile(t, s.write(t))
	st, err := f.Stream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	for _, want := range s.manifest.Entries {
		e, r, err := st.Next()
		if err != nil || e != want {
			t.Fatalf("Next() = %v, %v; want %v", e, err, want)
		}
		b, err := io.ReadAll(r)
		if err != nil || !bytes.Equal(b, s.content[e.Name]) {
			t.Fatalf("%s: %d bytes, %v", e.Name, len(b), err)
		}
	}
	for range 2 {
		if _, _, err := st.Next(); err != io.EOF {
			t.Fatalf("after the last entry: %v, want io.EOF", err)
		}
	}
	seen := map[string]int64{}
	if err := f.Verify(t.Context(), func(e Entry, n int64) { seen[e.Name] += n }); err != nil {
		t.Fatal(err)
	}
	for _, e := range s.manifest.Entries {
		if seen[e.Name] != e.Size {
			t.Errorf("progress told of %d bytes of %s, which has %d", seen[e.Name], e.Name, e.Size)
		}
	}
}

func TestSummaryAgreesWithTheFile(t *testing.T) {
	s := newSample()
	path := filepath.Join(t.TempDir(), "install")
	seen := map[string]int64{} // has no lock: calls must not overlap
	sum, err := writeFile(t.Context(), path, executables(), s.manifest, Fastest, s.open, func(e Entry, n int64) { seen[e.Name] += n })
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range s.manifest.Entries {
		if seen[e.Name] != e.Size {
			t.Errorf("progress told of %d bytes of %s, which has %d", seen[e.Name], e.Name, e.Size)
		}
	}
	out, err := exec.Command("sha256sum", path).Output()
	if err != nil || !strings.HasPrefix(string(out), sum.SHA256) {
		t.Errorf("sha256sum says %s, %v; the summary %s", out, err, sum.SHA256)
	}
	i, err := os.Stat(path)
	if err != nil || i.Size() != sum.Size || i.Mode() != 0o755 {
		t.Errorf("file: %v, %v; summary: %+v", i, err, sum)
	}
	f := openFile(t, path)
	if f.Size() != sum.Size || f.PayloadOffset() != sum.PayloadOffset || f.PayloadSize() != sum.PayloadSize {
		t.Errorf("reader and summary %+v disagree", sum)
	}
	if want := s.manifest.UnpackedSize() + int64(len(executables().Installer)); sum.UnpackedSize != want {
		t.Errorf("unpacked size %d, want %d", sum.UnpackedSize, want)
	}
}

// Each level uses the encoder that its description names, and an unusable level fails.
func TestLevels(t *testing.T) {
	for _, name := range Levels() {
		if name == "default" && raceDetector {
			continue // a minute for megabytes; TestSameInputsGiveTheSameBytes runs it too
		}
		t.Run(name, func(t *testing.T) {
			if name == "best" {
				rig.Tool(t, "zstd")
			}
			l, err := ParseLevel(name)
			if err != nil || !strings.HasPrefix(l.String(), name) {
				t.Errorf("%s: %v, %v", name, l, err)
			}
			if err := l.Check(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			s := newSample()
			s.add("bin/large", bytes.Repeat(s.bytes(50_000), 50)) // beyond the smallest window
			s.manifest.Components = append(s.manifest.Components, component("zz", "bin/large"))
			path := filepath.Join(t.TempDir(), "install")
			p := executables()
			p.Installer = bytes.Repeat(p.Installer, 3000) // beyond the largest window of the head
			if _, err := writeFile(t.Context(), path, p, s.manifest, l, s.open, nil); err != nil {
				t.Fatal(err)
			}
			f := openFile(t, path)
			if err := f.Verify(t.Context(), nil); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			// Each part has its own window.
			parts := f.Parts()
			if len(parts) != 3 {
				t.Fatalf("%d parts", len(parts))
			}
			for _, p := range parts {
				w, err := f.Window(p)
				want := map[string]int64{HeadPart: 8 << 20, BinariesPart: 4 << 20, ImagesPart: 1 << 20}[p.Name]
				if err != nil || w > want || w < want/2 && p.Name != ImagesPart {
					t.Errorf("%s: part %s: window %d, %v; want %d", name, p.Name, w, err, want)
				}
			}
			t.Run("zstd reads it", func(t *testing.T) {
				rig.Tool(t, "zstd")
				sh(t, t.TempDir(), "tail -c +%d %s | zstd -tq", f.PayloadOffset()+1, path)
			})
		})
	}
	if _, err := ParseLevel("most"); fault.ExitCode(err) != fault.Usage {
		t.Errorf("an unknown level: %v", err)
	}
}

func TestBestNeedsZstd(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if err := Best.Check(); err == nil || !strings.Contains(fault.Hint(err), "install zstd") {
		t.Errorf("error is %v, hint %q", err, fault.Hint(err))
	}
	if err := Default.Check(); err != nil {
		t.Error(err)
	}
	s, dir := newSample(), t.TempDir()
	if _, err := writeFile(t.Context(), filepath.Join(dir, "install"), executables(), s.manifest, Best, s.open, nil); err == nil {
		t.Error("written without zstd")
	}
	if files, _ := os.ReadDir(dir); len(files) != 0 {
		t.Errorf("left behind: %v", files)
	}
}

// The error of a failed zstd process has its messages.
func TestZstdFails(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "zstd"), []byte("#!/bin/sh\necho no room >&2\nexit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	s := newSample()
	_, err := writeFile(t.Context(), filepath.Join(t.TempDir(), "install"), executables(), s.manifest, Best, s.open, nil)
	if err == nil || !strings.Contains(err.Error(), "no room") {
		t.Errorf("error is %v", err)
	}
}

// The zstd and tar commands accept the payload and everything after it, from the payload's
// offset or from the header before it.
func TestStockToolsUnpackIt(t *testing.T) {
	rig.Tool(t, "zstd")
	s := newSample()
	path := s.write(t)
	f := openFile(t, path)
	for _, offset := range []int64{f.PayloadOffset(), f.PayloadOffset() - head.HeaderSize} {
		dir := t.TempDir()
		sh(t, dir, "tail -c +%d %s | tar --zstd -xf -", offset+1, path)
		for _, e := range s.manifest.Entries {
			out := sh(t, dir, "sha256sum %s", e.Name)
			if !strings.HasPrefix(out, e.SHA256) {
				t.Errorf("%s: sha256sum says %s", e.Name, out)
			}
		}
		want, _ := s.manifest.Encode()
		if got, _ := os.ReadFile(filepath.Join(dir, ManifestName)); !bytes.Equal(got, want) {
			t.Errorf("%s differs", ManifestName)
		}
		if got, _ := os.ReadFile(filepath.Join(dir, InstallerName)); !bytes.Equal(got, executables().Installer) {
			t.Errorf("%s differs", InstallerName)
		}
		for name, mode := range map[string]os.FileMode{"install": 0o755, "bin/runc": 0o755, "cni/bridge": 0o755, s.manifest.Entries[3].Name: 0o644} {
			if i, err := os.Stat(filepath.Join(dir, name)); err != nil || i.Mode() != mode || i.ModTime().Unix() != 0 {
				t.Errorf("%s: %v, %v; want mode %v and time 0", name, i, err, mode)
			}
		}
		sh(t, dir, "tail -c +%d %s | zstd -tq", offset+1, path)
	}
	list := sh(t, t.TempDir(), "tail -c +%d %s | tar --zstd -tf -", f.PayloadOffset()+1, path)
	want := ManifestName + "\n" + InstallerName
	for _, e := range s.manifest.Entries {
		want += "\n" + e.Name
	}
	if strings.TrimSpace(list) != want {
		t.Errorf("tar lists\n%s\nwant\n%s", list, want)
	}
}

func sh(t *testing.T, dir, format string, args ...any) string {
	t.Helper()
	cmd := exec.Command("bash", "-o", "pipefail", "-c", fmt.Sprintf(format, args...))
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd.Args[4], err, out)
	}
	return string(out)
}

func TestSameInputsGiveTheSameBytes(t *testing.T) {
	write := func(t *testing.T, s *sample, level Level) []byte {
		path := filepath.Join(t.TempDir(), "install")
		if _, err := writeFile(t.Context(), path, executables(), s.manifest, level, s.open, nil); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	s := newSample()
	// Compressible content of more blocks than an encoder works on at once.
	s.add("bin/large", bytes.Repeat(s.bytes(5000), 200))
	s.manifest.Components = append(s.manifest.Components, component("zz", "bin/large"))

	for _, level := range []Level{Default, Fastest, Best} {
		t.Run(level.String(), func(t *testing.T) {
			if level == Best {
				rig.Tool(t, "zstd")
			}
			want := write(t, s, level)
			for _, procs := range []int{1, 2, 8} {
				old := runtime.GOMAXPROCS(procs)
				got := write(t, s, level)
				runtime.GOMAXPROCS(old)
				if !bytes.Equal(got, want) {
					t.Errorf("GOMAXPROCS=%d gives other bytes", procs)
				}
			}
		})
	}
}

// The file in testdata is a complete file of format version 1. It must be readable for as
// long as this version is supported, and the same input must give the same bytes. A newer
// compressor may change the bytes: then run the test with -update and say so in the changelog.
func TestGoldenFile(t *testing.T) {
	const golden = "testdata/v1.bundle"
	s := newSample()
	got, err := os.ReadFile(s.writeLevel(t, Default))
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := checkFile(t, golden); err != nil {
		t.Error(err)
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("the sample is written as %d bytes with sha256 %s, %s has %d with %s", len(got), sha(got), golden, len(want), sha(want))
	}
}

// Damage is found even in an entry that the caller does not read.
func TestDamageInAnUnreadEntry(t *testing.T) {
	s := large()
	path := s.write(t)
	flipContent(t, path, s.content["bin/large"])
	f := openFile(t, path)
	st, err := f.Stream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	for {
		e, _, nextErr := st.Next()
		if err = nextErr; err != nil {
			break
		}
		if e.Name == "bin/last" {
			t.Fatal("the stream went on")
		}
	}
	wantFault(t, err, `entry "bin/large": bytes `)
	_, _, again := st.Next()
	if again != err {
		t.Errorf("after an error the stream says %v", again)
	}
}

// The reader of a damaged entry must never return io.EOF or a wrong byte, for any size of
// reads.
func TestDamagedEntryNeverReadsToEOF(t *testing.T) {
	s := large()
	path := s.write(t)
	want := s.content["bin/large"]
	flipContent(t, path, want)
	f := openFile(t, path)
	for _, size := range []int{511, 512, 1<<20 - 1, 1 << 20, 1<<20 + 1, 4 << 20} {
		st := wanting(t, f, "bin/large")
		_, r, err := st.Next()
		var got []byte
		for buf := make([]byte, size); err == nil; {
			var n int
			n, err = r.Read(buf)
			got = append(got, buf[:n]...)
		}
		wantFault(t, err, `entry "bin/large": bytes `)
		if !bytes.HasPrefix(want, got) {
			t.Errorf("reads of %d: %d other bytes", size, len(got))
		}
		if _, err := r.Read(make([]byte, 1)); err == nil || err == io.EOF {
			t.Errorf("the next read says %v", err)
		}
	}
}

// flipContent flips one bit in the middle of content in the file.
func flipContent(t *testing.T, path string, content []byte) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	mid := len(content) / 2
	at := bytes.Index(b, content[mid:mid+64])
	if at < 0 {
		t.Fatal("content does not stand in the clear")
	}
	b[at] ^= 4
	if err := os.WriteFile(path, b, 0o755); err != nil {
		t.Fatal(err)
	}
}

func TestStaleEntryReader(t *testing.T) {
	f := openFile(t, newSample().write(t))
	st, err := f.Stream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, old, _ := st.Next()
	_, current, _ := st.Next()
	if _, err := old.Read(make([]byte, 1)); err == nil || err == io.EOF {
		t.Errorf("reading the entry before: %v", err)
	}
	st.Close()
	if _, err := current.Read(make([]byte, 1)); err == nil || err == io.EOF {
		t.Errorf("reading after Close: %v", err)
	}
}

func TestConcurrentReaders(t *testing.T) {
	f := openFile(t, newSample().write(t))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if m, err := f.Manifest(); err != nil || m.KubernetesVersion != "v1.29.15" {
				t.Errorf("Manifest() = %v, %v", m, err)
			}
			st, err := f.Stream(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			defer st.Close()
			if err := readAll(st); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func TestCancelEndsReading(t *testing.T) {
	f := openFile(t, newSample().write(t))
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.Stream(cancelled); !errors.Is(err, context.Canceled) {
		t.Errorf("Stream: %v", err)
	}
	if err := f.Verify(cancelled, nil); !errors.Is(err, context.Canceled) || fault.ExitCode(err) != fault.Interrupted {
		t.Errorf("Verify: %v", err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	st, err := f.Stream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	_, r, err := st.Next()
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := r.Read(make([]byte, 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("Read: %v", err)
	}
	if _, _, err := st.Next(); !errors.Is(err, context.Canceled) {
		t.Errorf("Next: %v", err)
	}

	ctx, cancel = context.WithCancel(t.Context())
	err = f.Verify(ctx, func(e Entry, _ int64) {
		if e.Name == "bin/kubelet" {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Verify: %v", err)
	}
}

func TestFailedWriteLeavesNothing(t *testing.T) {
	broken := errors.New("broken")
	cases := []struct {
		name string
		open func(s *sample, cancel func(), e Entry) (io.ReadCloser, error)
		want string
	}{
		{"open fails", func(_ *sample, _ func(), e Entry) (io.ReadCloser, error) { return nil, broken }, "adding bin/kubelet: broken"},
		{"read fails", func(_ *sample, _ func(), e Entry) (io.ReadCloser, error) {
			return io.NopCloser(io.MultiReader(strings.NewReader("x"), errReader{broken})), nil
		}, "adding bin/kubelet: broken"},
		{"short", func(s *sample, _ func(), e Entry) (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(s.content[e.Name][1:])), nil
		}, "adding bin/kubelet: source has 20000 bytes, the manifest lists 20001"},
		{"long", func(s *sample, _ func(), e Entry) (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(append(bytes.Clone(s.content[e.Name]), 0))), nil
		}, "adding bin/kubelet: source has more than the 20001 bytes"},
		{"other content", func(s *sample, _ func(), e Entry) (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(make([]byte, e.Size))), nil
		}, "adding bin/kubelet: source has sha256"},
		{"cancelled", func(s *sample, cancel func(), e Entry) (io.ReadCloser, error) {
			cancel()
			return s.open(e)
		}, "context canceled"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := newSample()
			dir := t.TempDir()
			path := filepath.Join(dir, "install")
			if err := os.WriteFile(path, []byte("was here"), 0o600); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			_, err := writeFile(ctx, path, executables(), s.manifest, Default, func(e Entry) (io.ReadCloser, error) {
				if e.Name == "bin/kubelet" {
					return c.open(s, cancel, e)
				}
				return s.open(e)
			}, nil)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error is %v, want %q", err, c.want)
			}
			if b, _ := os.ReadFile(path); string(b) != "was here" {
				t.Errorf("the file that was there is now %d other bytes", len(b))
			}
			if files, _ := os.ReadDir(dir); len(files) != 1 {
				t.Errorf("left behind: %v", files)
			}
		})
	}
}

type errReader struct{ err error }

func (e errReader) Read([]byte) (int, error) { return 0, e.err }

func TestWriteFileRefuses(t *testing.T) {
	s := newSample()
	dir := t.TempDir()
	write := func(path string, launcher []byte) error {
		_, err := writeFile(t.Context(), path, Executables{launcher, executables().Installer}, s.manifest, Default, s.open, nil)
		return err
	}
	if err := write(dir, stub()); fault.ExitCode(err) != fault.Usage {
		t.Errorf("a directory: %v", err)
	}
	if err := write("/dev/null", stub()); fault.ExitCode(err) != fault.Usage {
		t.Errorf("a device: %v", err)
	}
	if err := write(filepath.Join(dir, "a"), append(stub(), 0)); err == nil || !strings.Contains(err.Error(), "1 bytes after its ELF image") {
		t.Errorf("a launcher with something behind it: %v", err)
	}
	s.manifest.Entries[0].Name = "bin/../../etc/passwd"
	if err := write(filepath.Join(dir, "a"), stub()); err == nil {
		t.Error("a manifest that does not validate was written")
	}
	if files, _ := os.ReadDir(dir); len(files) != 0 {
		t.Errorf("left behind: %v", files)
	}
}
