//go:build e2e

package e2e

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"airlift/bundle"
	"airlift/scripts/lab"
	"airlift/scripts/site"
)

// TestDamagedFile takes bad copies of the file to a host: each is noticed, and
// nothing of it remains.
func TestDamagedFile(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-file", Hosts: 1})
	h := s.Hosts[0]
	bare := untouched(t, h)
	info, err := os.Stat(*bundlePath)
	if err != nil {
		t.Fatal(err)
	}
	f, err := bundle.Open(*bundlePath)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()

	t.Run("truncated", func(t *testing.T) {
		carry(t, h, info.Size()*2/3, -1)
		contains(t, install(t, h, 4, "init"), "incomplete", "hint: ")
		same(t, bare, untouched(t, h))
	})
	t.Run("one byte flipped early in the payload", func(t *testing.T) {
		carry(t, h, info.Size(), f.PayloadOffset()+1000)
		contains(t, install(t, h, 4, "init"), "hint: ")
		same(t, bare, untouched(t, h))
	})
	for _, p := range f.Parts() {
		t.Run("one byte flipped in the middle of the "+p.Name, func(t *testing.T) {
			carry(t, h, info.Size(), p.Offset+p.Size/2)
			contains(t, install(t, h, 4, "init"), "hint: ")
			// The head has the installer: this copy cannot even reset.
			if p.Name != bundle.HeadPart {
				install(t, h, 0, "reset", "--force")
			}
			same(t, bare, untouched(t, h))
		})
	}
	t.Run("a whole copy finishes what the damaged one began", func(t *testing.T) {
		install(t, h, 4, "init")
		if _, err := s.Carry(t.Context(), *bundlePath); err != nil {
			t.Fatal(err)
		}
		install(t, h, 0, "init")
		systemIsUp(t, s, 1)
	})
}

// carry copies the first size bytes of the bundle to the host, with the byte at
// flip inverted unless it is negative.
func carry(t *testing.T, h *lab.Host, size, flip int64) {
	t.Helper()
	in, err := os.Open(*bundlePath)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	path := filepath.Join(t.TempDir(), "install")
	out, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if _, err := io.CopyN(out, in, size); err != nil {
		t.Fatal(err)
	}
	if flip >= 0 {
		b := make([]byte, 1)
		if _, err := in.ReadAt(b, flip); err != nil {
			t.Fatal(err)
		}
		b[0] ^= 0xff
		if _, err := out.WriteAt(b, flip); err != nil {
			t.Fatal(err)
		}
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := h.CopyIn(t.Context(), path, site.Installer, 0o755); err != nil {
		t.Fatal(err)
	}
}
