//go:build e2e

package e2e

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"airlift/bundle"
	"airlift/scripts/lab"
	"airlift/scripts/site"
)

// TestDamagedFile copies damaged files to a host: each is detected, and nothing remains.
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
		copyPart(t, h, info.Size()*2/3, -1)
		contains(t, install(t, h, 4, "init"), "incomplete", "hint: ")
		same(t, bare, untouched(t, h))
	})
	// A flipped byte anywhere changes nothing: at both ends of the payload, in the middle
	// of each part, and at random offsets.
	flips := []int64{f.PayloadOffset() + 1000, f.PayloadOffset() + f.PayloadSize() - 1}
	for _, p := range f.Parts() {
		flips = append(flips, p.Offset+p.Size/2)
	}
	chance := rand.New(rand.NewPCG(15, 1))
	for range 6 {
		flips = append(flips, f.PayloadOffset()+chance.Int64N(f.PayloadSize()))
	}
	for _, at := range flips {
		t.Run(fmt.Sprintf("byte %d of %d flipped", at, info.Size()), func(t *testing.T) {
			copyPart(t, h, info.Size(), at)
			contains(t, install(t, h, 4, "init"), " of the file do not match their sha256", "hint: ")
			contains(t, install(t, h, 4, "join", "10.77.0.99:6443", "--token", "abcdef.0123456789abcdef", "--discovery-token-unsafe-skip-ca-verification"), " of the file do not match their sha256")
			same(t, bare, untouched(t, h))
		})
	}
	images := f.Parts()[len(f.Parts())-1]
	t.Run("preflight and single phases", func(t *testing.T) {
		copyPart(t, h, info.Size(), images.Offset+images.Size/2)
		contains(t, install(t, h, 4, "preflight", "init"), "BundleFile", " of the file do not match their sha256")
		contains(t, install(t, h, 4, "init", "phase", "unpack"), " of the file do not match their sha256")
		contains(t, install(t, h, 4, "init", "--skip-phases", "preflight"), " of the file do not match their sha256")
		same(t, bare, untouched(t, h))
	})
	t.Run("--skip-file-check finds the damage while it unpacks", func(t *testing.T) {
		contains(t, install(t, h, 4, "init", "--skip-file-check"), " of the file do not match their sha256")
	})
	t.Run("a whole copy finishes what the damaged one began", func(t *testing.T) {
		if _, err := s.CopyBundle(t.Context(), *bundlePath); err != nil {
			t.Fatal(err)
		}
		install(t, h, 0, "init")
		systemIsUp(t, s, 1)
	})
}

// copyPart copies the first size bytes of the bundle to the host, with the byte at flip
// inverted unless flip is negative.
func copyPart(t *testing.T, h *lab.Host, size, flip int64) {
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
