package main

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"airlift/bundle"
	"airlift/scripts/fixtures/testbundle"
)

// noisyBundle writes a bundle file that runs this test's main, and is larger than its head.
func noisyBundle(t *testing.T, only ...string) string {
	t.Helper()
	self, err := os.ReadFile(os.Args[0])
	must(t, err)
	noise := make([]byte, 1<<20)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(noise)
	images := testbundle.NewImages(only...)
	images.Manifest.Platform = "linux/" + runtime.GOARCH
	images.Add(t, "example.com/app:1", "example.com/app:1", nil, testbundle.Layer(t, "noise", string(noise)))
	path := filepath.Join(t.TempDir(), "install")
	testbundle.WriteFile(t, path, bundle.Executables{Launcher: self, Installer: []byte("not used")}, &images.Manifest, bundle.Fastest, images.Content)
	return path
}

func TestThin(t *testing.T) {
	whole := noisyBundle(t)
	dir := t.TempDir()
	thin, again := filepath.Join(dir, "thin"), filepath.Join(dir, "again")
	out, code := runBundle(t, whole, "thin", thin)
	if code != 0 || !strings.Contains(out, thin+": ") || !strings.Contains(out, "Kubernetes v1.37.1 for linux/"+runtime.GOARCH+"\n\nCopy it to a host and run it there") {
		t.Fatalf("exit code %d\n%s", code, out)
	}
	// The thin file works, and writes itself.
	out, code = runBundle(t, thin, "thin", again, "-o", "json")
	var w struct {
		File, ID        string
		Size, WholeSize int64
	}
	if err := json.Unmarshal([]byte(out), &w); err != nil || code != 0 || w.File != again || len(w.ID) != 64 {
		t.Errorf("exit code %d, %v\n%s", code, err, out)
	}
	a, err := os.ReadFile(thin)
	must(t, err)
	b, err := os.ReadFile(again)
	must(t, err)
	i, err := os.Stat(whole)
	must(t, err)
	if string(a) != string(b) || w.Size != int64(len(b)) || w.WholeSize != i.Size() {
		t.Errorf("%d and %d bytes; %+v", len(a), len(b), w)
	}
	if out, code := runBundle(t, thin, "version"); code != 0 || !strings.Contains(out, "example.com/app:1") {
		t.Errorf("version: exit code %d\n%s", code, out)
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"thin", whole}, 2, "is a bundle: it is not replaced"},
		{[]string{"thin", thin}, 2, "is a bundle: it is not replaced"},
		{[]string{"thin"}, 2, "requires the name of one file"},
		{[]string{"thin", "a", "b"}, 2, "requires the name of one file"},
		{[]string{"thin", filepath.Join(dir, "none", "x")}, 1, "no such file or directory"},
	} {
		if out, code := runBundle(t, whole, c.args...); code != c.code || !strings.Contains(out, c.want) {
			t.Errorf("%q: exit code %d\n%s", c.args, code, out)
		}
	}
	if list, _ := os.ReadDir(dir); len(list) != 2 {
		t.Errorf("files: %v", list)
	}
}

// What has no cluster to read from refuses a thin file before it changes anything.
func TestThinNeedsACluster(t *testing.T) {
	thin := filepath.Join(t.TempDir(), "thin")
	if out, code := runBundle(t, noisyBundle(t), "thin", thin); code != 0 {
		t.Fatal(out)
	}
	for _, args := range [][]string{
		{"init", "--dry-run", "--ignore-preflight-errors", "all"},
		{"images", "export", filepath.Join(t.TempDir(), "x.tar")},
		{"images", "export", "-"},
	} {
		if out, code := runBundle(t, thin, args...); code != 2 || !strings.Contains(out, thin+" is a thin file: it has only the installer") || !strings.Contains(out, "hint: use the whole file") {
			t.Errorf("%q: exit code %d\n%s", args, code, out)
		}
	}
	if out, code := runBundle(t, noisyBundle(t, bundle.OnlyImages), "import", "--base", thin); code != 2 || !strings.Contains(out, "is a thin file") {
		t.Errorf("a thin base: exit code %d\n%s", code, out)
	}
}
