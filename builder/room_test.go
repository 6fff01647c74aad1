package builder_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"airlift/builder"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/fakesites"
	"airlift/scripts/fixtures/smallfs"
)

// A file system that is too small is found and named before large downloads.
func TestFullFileSystems(t *testing.T) {
	for name, c := range map[string]struct {
		change func(o *builder.Options, dir string)
		size   int64
		want   string
		blobs  bool // whether layers were downloaded
	}{
		"cache":       {func(o *builder.Options, dir string) { o.CacheDir = dir }, 256 << 10, "the downloads (estimated)", false},
		"output":      {func(o *builder.Options, dir string) { o.Output = filepath.Join(dir, "install") }, 64 << 10, "the bundle (estimated)", false},
		"both on one": {func(o *builder.Options, dir string) { o.CacheDir, o.Output = dir, filepath.Join(dir, "install") }, 512 << 10, "the downloads and the bundle (estimated)", false},
		"installer": {func(o *builder.Options, dir string) {
			o.Output, o.Executables.Installer = filepath.Join(dir, "install"), append(o.Executables.Installer, make([]byte, 64<<20)...)
		}, 8 << 20, "the bundle (estimated)", false},
		"cache, on the way": {func(o *builder.Options, dir string) { o.CacheDir = dir }, 640 << 10, "bytes free", true},
	} {
		t.Run(name, func(t *testing.T) {
			u := fakesites.New(t, version)
			o := options(t, u)
			dir := smallfs.Small(t, c.size)
			c.change(&o, dir)
			_, err := runOne(context.Background(), o)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "("+dir+", tmpfs)") || !strings.Contains(fault.Hint(err), "--cache-dir") {
				t.Errorf("err = %v, hint = %q", err, fault.Hint(err))
			}
			blobs := false
			for _, q := range u.Requests() {
				blobs = blobs || strings.HasSuffix(q, ".tgz")
			}
			if blobs != c.blobs {
				t.Errorf("downloads began: %v", blobs)
			}
			if _, err := os.Stat(o.Output); err == nil {
				t.Error("a bundle was written")
			}
		})
	}
}

// A full directory for temporary files has a hint of its own.
func TestFullTemporaryDirectory(t *testing.T) {
	o := options(t, fakesites.New(t, version))
	dir := smallfs.Small(t, 16<<10)
	t.Setenv("TMPDIR", dir)
	_, err := runOne(context.Background(), o)
	if err == nil || !strings.Contains(err.Error(), "("+dir+", tmpfs) has") || !strings.Contains(fault.Hint(err), "set TMPDIR to a directory with free space") {
		t.Errorf("err = %v, hint = %q", err, fault.Hint(err))
	}
}
