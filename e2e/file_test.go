//go:build e2e

package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"airlift/bundle"
	"airlift/scripts/lab"
	"airlift/scripts/lab/site"
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
		size := info.Size() * 2 / 3
		run(t, h, "truncate", "--size", fmt.Sprint(size), site.Installer)
		contains(t, install(t, h, 4, "init"), "incomplete", "hint: ")
		same(t, bare, untouched(t, h))
		if _, err := s.CopyBundle(t.Context(), *bundlePath); err != nil {
			t.Fatal(err)
		}
	})
	// Wherever a byte is flipped, the file is refused and the host does not change: at
	// both ends of the payload, in the middle of each part, and at random offsets.
	flips := []int64{f.PayloadOffset() + 1000, f.PayloadOffset() + f.PayloadSize() - 1}
	for _, p := range f.Parts() {
		flips = append(flips, p.Offset+p.Size/2)
	}
	chance := rand.New(rand.NewPCG(15, 1))
	for range 3 {
		flips = append(flips, f.PayloadOffset()+chance.Int64N(f.PayloadSize()))
	}
	for i, at := range flips {
		t.Run(fmt.Sprintf("byte %d of %d flipped", at, info.Size()), func(t *testing.T) {
			flip(t, h, at)
			defer flip(t, h, at)
			contains(t, install(t, h, 4, "init"), " of the file do not match their sha256", "hint: ")
			if i == 0 {
				contains(t, install(t, h, 4, "join", "10.77.0.99:6443", "--token", "abcdef.0123456789abcdef", "--discovery-token-unsafe-skip-ca-verification"), " of the file do not match their sha256")
			}
			same(t, bare, untouched(t, h))
		})
	}
	images := f.Parts()[len(f.Parts())-1]
	t.Run("preflight and single phases", func(t *testing.T) {
		flip(t, h, images.Offset+images.Size/2)
		contains(t, install(t, h, 4, "preflight", "init"), "BundleFile", " of the file do not match their sha256")
		contains(t, install(t, h, 4, "init", "phase", "unpack"), " of the file do not match their sha256")
		contains(t, install(t, h, 4, "init", "--skip-phases", "preflight"), " of the file do not match their sha256")
		same(t, bare, untouched(t, h))
	})
	t.Run("--skip-file-check finds the damage while it unpacks", func(t *testing.T) {
		contains(t, install(t, h, 4, "init", "--skip-file-check"), " of the file do not match their sha256")
	})
	t.Run("a whole copy finishes what the damaged one began", func(t *testing.T) {
		flip(t, h, images.Offset+images.Size/2)
		install(t, h, 0, "init")
		systemIsUp(t, s, 1)
	})
}

// flip inverts one byte of the host's copy of the file. A second call restores it.
func flip(t *testing.T, h *lab.Host, at int64) {
	t.Helper()
	text := run(t, h, "od", "--address-radix=n", "--format=u1", fmt.Sprintf("--skip-bytes=%d", at), "--read-bytes=1", site.Installer)
	var value byte
	if _, err := fmt.Sscan(text, &value); err != nil {
		t.Fatalf("the byte at %d: %q: %v", at, text, err)
	}
	script := fmt.Sprintf(`printf '\%03o' | dd of=%s bs=1 seek=%d conv=notrunc status=none`, value^0xff, site.Installer, at)
	run(t, h, "sh", "-c", script)
}
