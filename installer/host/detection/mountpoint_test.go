package detection_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"airlift/installer/host/detection"
)

// TestMountPoint: a directory is on the file system that is mounted closest to it, also through links.
func TestMountPoint(t *testing.T) {
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink("/proc/self", link); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{"/": "/", "/proc": "/proc", link: "/proc", "/proc/self/net": "/proc"} {
		if got, err := detection.MountPoint(dir); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", dir, got, err, want)
		}
	}
	if _, err := detection.MountPoint("/no/such/directory"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}
