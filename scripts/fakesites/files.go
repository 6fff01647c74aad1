package fakesites

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"airlift/images/fetch"
)

// Executable returns the smallest ELF header that bundle accepts as a static executable.
func Executable(t testing.TB, machine elf.Machine) []byte {
	t.Helper()
	h := elf.Header64{Type: uint16(elf.ET_EXEC), Machine: uint16(machine), Version: 1, Ehsize: 64, Phentsize: 56, Shentsize: 64}
	copy(h.Ident[:], "\x7fELF\x02\x01\x01")
	var b bytes.Buffer
	if err := binary.Write(&b, binary.LittleEndian, h); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Files writes files to a new directory and returns it.
func Files(t testing.TB, files map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	WriteFiles(t, dir, files)
	return dir
}

// WriteFiles writes files below dir. Their names may have directories.
func WriteFiles(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// Cached returns the content of a digest in the cache.
func Cached(t testing.TB, cache *fetch.Cache, digest string) []byte {
	t.Helper()
	f, err := cache.Open(strings.TrimPrefix(digest, "sha256:"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	content, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return content
}
