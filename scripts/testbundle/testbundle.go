// Package testbundle writes small bundles for tests.
package testbundle

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"airlift/bundle"
	"airlift/installer/payload"
)

// Write writes a bundle with a name and opens it. content has the bytes of the entries by their names.
func Write(t *testing.T, name string, installer []byte, m *bundle.Manifest, content map[string][]byte) *payload.Bundle {
	t.Helper()
	self, err := os.ReadFile("/proc/self/exe") // any ELF file can be the launcher
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), name)
	WriteFile(t, path, bundle.Executables{Launcher: self, Installer: installer}, m, bundle.Fastest, content)
	f, err := bundle.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	b, err := payload.OpenBundle(f)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// WriteFile writes a bundle to path. content has the bytes of the entries by their names.
func WriteFile(t testing.TB, path string, executables bundle.Executables, m *bundle.Manifest, level bundle.Level, content map[string][]byte) {
	t.Helper()
	d, err := bundle.WriteDraft(t.Context(), path, executables, m, level, func(e bundle.Entry) (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content[e.Name])), nil
	}, nil)
	if err == nil {
		defer d.Discard()
		err = d.Replace()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Sum returns the sha256 of data in hexadecimal.
func Sum(data []byte) string { return fmt.Sprintf("%x", sha256.Sum256(data)) }
