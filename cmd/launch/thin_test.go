package main

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"airlift/bundle"
	"airlift/scripts/fixtures/testbundle"
)

// thinCarrier writes a bundle that is larger than its head, and its thin file.
func thinCarrier(t *testing.T) (whole, thin string) {
	t.Helper()
	noise := make([]byte, 1<<20)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(noise)
	images := testbundle.NewImages(bundle.OnlyImages)
	images.Add(t, "example.com/app:1", "example.com/app:1", nil, testbundle.Layer(t, "noise", string(noise)))
	dir := t.TempDir()
	whole, thin = filepath.Join(dir, "install"), filepath.Join(dir, "thin")
	testbundle.WriteFile(t, whole, programs, &images.Manifest, bundle.Fastest, images.Content)
	f, err := bundle.Open(whole)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := bundle.WriteThin(t.Context(), f, thin); err != nil {
		t.Fatal(err)
	}
	return whole, thin
}

func TestThinFileStarts(t *testing.T) {
	whole, thin := thinCarrier(t)
	info, err := os.Stat(whole)
	if err != nil {
		t.Fatal(err)
	}
	s := run(t, exec.Command(thin, "a b"), 1)
	if s.Path != thin || s.Name != "install" || s.FileSize != info.Size() {
		t.Errorf("%+v", s)
	}
}

func TestDamagedThinFileDoesNotStart(t *testing.T) {
	_, thin := thinCarrier(t)
	b, err := os.ReadFile(thin)
	if err != nil {
		t.Fatal(err)
	}
	payload := len(programs.Launcher) + 64
	for name, at := range map[string]int{"header": payload - 1, "installer": payload + 300_000, "digests": len(b) - 240, "trailer": len(b) - 100} {
		flip := filepath.Join(t.TempDir(), "thin")
		damaged := append([]byte(nil), b...)
		damaged[at] ^= 1
		if err := os.WriteFile(flip, damaged, 0o755); err != nil {
			t.Fatal(err)
		}
		refused(t, name, flip, "is damaged")
	}
	for _, size := range []int{payload + 10, len(b) - 233, len(b) - 1} {
		short := filepath.Join(t.TempDir(), "thin")
		if err := os.WriteFile(short, b[:size], 0o755); err != nil {
			t.Fatal(err)
		}
		refused(t, "truncated", short, "is an incomplete copy")
	}
}
