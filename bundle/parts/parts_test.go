package parts_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"airlift/bundle/parts"
	"airlift/internal/fault"
)

func random(size int) []byte {
	r := rand.New(rand.NewPCG(1, uint64(size)))
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func split(ctx context.Context, b []byte, base string, size int64) (paths []string, err error) {
	return parts.Split(ctx, io.NewSectionReader(bytes.NewReader(b), 0, int64(len(b))), base, size, func(int64) {})
}

// cat joins the parts and sha256sum checks them: neither was written here.
func TestStockToolsJoinAndCheck(t *testing.T) {
	for _, size := range []int64{300_000, 100_001, 299_999, 300_001, 1000, 150_000} {
		dir := t.TempDir()
		b := random(300_000)
		base := filepath.Join(dir, "a file")
		paths, err := split(t.Context(), b, base, size)
		if size == 1000 {
			if len(paths) != 300 {
				t.Errorf("%d parts, %v", len(paths), err)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		c := exec.Command("sh", "-c", `cat a\ file.[0-9]* > joined && cmp joined "$1" && cp joined "a file" && sha256sum --check --strict "a file.sha256"`, "sh", "-")
		c.Dir, c.Stdin = dir, bytes.NewReader(b)
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("size %d: %v\n%s", size, err, out)
		}
		for _, p := range paths {
			if i, err := os.Stat(p); err != nil || i.Size() > size || i.Mode().Perm() != 0o644 {
				t.Errorf("%s: %v, %v", p, i, err)
			}
		}
		wantFiles(t, dir, len(paths)+3)
	}
}

func TestSetReadsAsOneFile(t *testing.T) {
	b := random(300_000)
	base := filepath.Join(t.TempDir(), "install")
	if _, err := split(t.Context(), b, base, 70_000); err != nil {
		t.Fatal(err)
	}
	s, err := parts.Open(base)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		first := r.IntN(len(b))
		got := make([]byte, 1+r.IntN(len(b)-first))
		if n, err := s.ReadAt(got, int64(first)); err != nil || n != len(got) || !bytes.Equal(got, b[first:first+n]) {
			t.Fatalf("%d bytes at %d: %d, %v", len(got), first, n, err)
		}
	}
	if n, err := s.ReadAt(make([]byte, 10), int64(len(b)-5)); n != 5 || err != io.EOF {
		t.Errorf("at the end: %d, %v", n, err)
	}
	if s.Size() != int64(len(b)) {
		t.Errorf("size %d", s.Size())
	}
	for _, p := range s.Parts {
		if err := s.Check(t.Context(), p, func(int64) {}); err != nil {
			t.Error(err)
		}
	}
}

// A list that an editor or sha256sum --binary wrote is read like a list of bundle split.
func TestOtherLists(t *testing.T) {
	for name, other := range map[string]func(string) string{
		"binary":     func(s string) string { return strings.ReplaceAll(s, "  ", " *") },
		"Windows":    func(s string) string { return "\ufeff" + strings.ReplaceAll(s, "\n", "\r\n") },
		"UTF-16":     func(s string) string { return "\xff\xfe" + strings.Join(strings.SplitAfter(s, ""), "\x00") + "\x00" },
		"empty line": func(s string) string { return "\n" + s + "\n\n" },
		"capitals":   func(s string) string { return strings.NewReplacer("a", "A", "e", "E").Replace(s) },
	} {
		base := filepath.Join(t.TempDir(), "f")
		if _, err := split(t.Context(), random(200_000), base, 70_000); err != nil {
			t.Fatal(err)
		}
		if err := change(parts.ListPath(base), func(b []byte) []byte { return []byte(other(string(b))) }); err != nil {
			t.Fatal(err)
		}
		s, err := parts.Open(base)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, p := range s.Parts {
			if err := s.Check(t.Context(), p, func(int64) {}); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		s.Close()
	}
}

// Each damage of a part is refused with its own text.
func TestDamagedParts(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(part, list string) error
		want   string
	}{
		"one byte":       {func(p, _ string) error { return change(p, func(b []byte) []byte { b[7] ^= 1; return b }) }, "is damaged: it does not match its sha256"},
		"truncated":      {func(p, _ string) error { return change(p, func(b []byte) []byte { return b[:9] }) }, "is damaged: it does not match its sha256"},
		"missing":        {func(p, _ string) error { return os.Remove(p) }, "is missing"},
		"no list":        {func(_, l string) error { return os.Remove(l) }, "cannot be checked"},
		"a damaged list": {func(_, l string) error { return change(l, func(b []byte) []byte { return b[10:] }) }, "is not a line of sha256sum"},
		"no line":        {func(_, l string) error { return change(l, func(b []byte) []byte { return b[3*(64+2+12):] }) }, "cannot be checked"},
	} {
		base := filepath.Join(t.TempDir(), "install")
		if _, err := split(t.Context(), random(200_000), base, 70_000); err != nil {
			t.Fatal(err)
		}
		if err := c.damage(parts.Path(base, 2), parts.ListPath(base)); err != nil {
			t.Fatal(err)
		}
		s, err := parts.Open(base)
		if err == nil {
			err = s.Check(t.Context(), s.Parts[1], func(int64) {})
			s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || fault.ExitCode(err) != fault.Bundle || fault.Hint(err) == "" {
			t.Errorf("%s: %v; want %q", name, err, c.want)
		}
	}
}

func change(path string, f func([]byte) []byte) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return os.WriteFile(path, f(b), 0o644)
}

// Nothing is overwritten, also not parts of another split with other numbers.
func TestNothingIsOverwritten(t *testing.T) {
	for _, name := range []string{"install.001", "install.009", "install.sha256", "install.000", "install.0010", "install.1~"} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, name), []byte("existing"), 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := split(t.Context(), random(3000), filepath.Join(dir, "install"), 1000)
		if err == nil || !strings.Contains(err.Error(), name) || fault.ExitCode(err) != fault.Usage {
			t.Errorf("%s: %v", name, err)
		}
		wantFiles(t, dir, 1)
	}
	dir := t.TempDir()
	if _, err := split(t.Context(), random(3000), filepath.Join(dir, "install"), 2); fault.ExitCode(err) != fault.Usage {
		t.Errorf("1500 parts: %v", err)
	}
	wantFiles(t, dir, 0)
}

// An interrupted or failed split leaves no files.
func TestInterrupted(t *testing.T) {
	for stop := range 5 {
		dir := t.TempDir()
		ctx, cancel := context.WithCancel(t.Context())
		b, n := random(4000), 0
		_, err := parts.Split(ctx, io.NewSectionReader(bytes.NewReader(b), 0, 4000), filepath.Join(dir, "install"), 1000, func(int64) {
			if n == stop {
				cancel()
			}
			n++
		})
		cancel()
		if stop < 4 && !errors.Is(err, context.Canceled) || stop == 4 && err != nil {
			t.Errorf("after %d parts: %v", stop, err)
		}
		if err != nil {
			wantFiles(t, dir, 0)
		}
	}
	dir := t.TempDir()
	short := io.NewSectionReader(bytes.NewReader(random(2500)), 0, 4000)
	if _, err := parts.Split(t.Context(), short, filepath.Join(dir, "install"), 1000, func(int64) {}); err == nil {
		t.Error("a file that shrinks is accepted")
	}
	wantFiles(t, dir, 0)
}

func wantFiles(t *testing.T, dir string, want int) {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil || len(list) != want {
		t.Errorf("%d files, want %d: %v, %v", len(list), want, list, err)
	}
}

func TestSizes(t *testing.T) {
	for s, want := range map[string]int64{
		"fat32": 4294967295, "FAT32": 4294967295, "cd": 700e6, "dvd": 4294967295,
		"4G": 4 << 30, "4GB": 4e9, "4GiB": 4 << 30, "650M": 650 << 20, "650MB": 650e6, "2048K": 2 << 20, "1048576": 1 << 20,
	} {
		if got, err := parts.ParseSize(s); err != nil || got != want {
			t.Errorf("%s: %d, %v; want %d", s, got, err, want)
		}
	}
	for _, s := range []string{"", "G", "-4G", "4 G", "1.5G", "4T", "0", "1048575", "9223372036854775807G", "floppy"} {
		if n, err := parts.ParseSize(s); err == nil || fault.ExitCode(err) != fault.Usage || fault.Hint(err) == "" {
			t.Errorf("%q: %d, %v", s, n, err)
		}
	}
}

func TestNames(t *testing.T) {
	for path, want := range map[string]int{"/a/install.001": 1, "install.999": 999, "b/install.sha256": 0} {
		if _, n, ok := parts.Parse(path); !ok || n != want {
			t.Errorf("%s: %d, %t", path, n, ok)
		}
	}
	for _, path := range []string{"install", "install.1", "install.0001x", "install.000", ".001", "install.minisig"} {
		if base, n, ok := parts.Parse(path); ok {
			t.Errorf("%s is part %d of %q", path, n, base)
		}
	}
}
