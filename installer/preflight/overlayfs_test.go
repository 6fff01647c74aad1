package preflight

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/continuity/fs"
	"golang.org/x/sys/unix"

	"airlift/scripts/fixtures/rig"
)

// diskOf mounts a new ext4 file system, made with these features, at a directory of the host.
func diskOf(t *testing.T, s *subject, dir, features string) {
	t.Helper()
	rig.Root(t)
	target, image := s.host.Path(dir), filepath.Join(t.TempDir(), "disk.img")
	if err := os.MkdirAll(target, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, argv := range [][]string{
		{"truncate", "-s", "8M", image}, {"mkfs.ext4", "-q", "-O", features, image}, {"mount", "-o", "loop", image, target},
	} {
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", argv[0], err, out)
		}
	}
	t.Cleanup(func() {
		if err := unix.Unmount(target, 0); err != nil {
			t.Error(err)
		}
	})
}

// TestOverlayfsNeedsTypes compares the answer with containerd's, which has to create a file.
func TestOverlayfsNeedsTypes(t *testing.T) {
	for features, fits := range map[string]bool{"filetype": true, "^filetype": false} {
		t.Run(features, func(t *testing.T) {
			s := healthy(t)
			s.Images = "/var/lib/containerd"
			diskOf(t, s, s.Images, features)
			for _, empty := range []bool{false, true} {
				if empty {
					if err := os.Remove(s.host.Path(s.Images + "/lost+found")); err != nil {
						t.Fatal(err)
					}
				}
				if is, err := storesTypes(s.host.Path(s.Images)); err != nil || is != fits {
					t.Errorf("empty %v: %v, %v", empty, is, err)
				}
				found := s.runOne(t, "Overlayfs")
				if fits != (len(found) == 0) || !fits && !strings.Contains(found[0].Message, "the file system at /var/lib/containerd does not store the types of files") {
					t.Errorf("empty %v: %+v", empty, found)
				}
			}
			if is, err := fs.SupportsDType(s.host.Path(s.Images)); err != nil || is != fits {
				t.Errorf("containerd's answer: %v, %v", is, err)
			}
		})
	}
}

// The kernel refuses what noUpper lists, and an existing containerd with another snapshotter needs
// no overlayfs.
func TestOverlayfsOnOverlayfs(t *testing.T) {
	rig.Root(t)
	s := healthy(t)
	s.Images = "/var/lib/containerd"
	target, dirs := s.host.Path(s.Images), t.TempDir()
	overlay := func(at, below string) error {
		for _, dir := range []string{at, below + "/lower", below + "/upper", below + "/work"} {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		err := unix.Mount("overlay", at, "overlay", 0, "lowerdir="+below+"/lower,upperdir="+below+"/upper,workdir="+below+"/work")
		if err == nil {
			t.Cleanup(func() {
				if err := unix.Unmount(at, 0); err != nil {
					t.Error(err)
				}
			})
		}
		return err
	}
	if err := overlay(target, dirs); err != nil {
		t.Fatal(err)
	}
	if err := overlay(filepath.Join(target, "merged"), target); err == nil {
		t.Error("the kernel accepts overlayfs on overlayfs")
	}
	if found := s.runOne(t, "Overlayfs"); len(found) != 1 || !strings.Contains(found[0].Message, "the file system at /var/lib/containerd is overlayfs itself") {
		t.Errorf("%+v", found)
	}
	remove(t, s, "/proc/filesystems")
	s.RuntimeInUse, s.Snapshotter = true, "native"
	if found := s.runOne(t, "Overlayfs"); len(found) > 0 {
		t.Errorf("another snapshotter: %+v", found)
	}
	s.Snapshotter = "overlayfs"
	if found := s.runOne(t, "Overlayfs"); len(found) != 1 {
		t.Errorf("an existing containerd with overlayfs: %+v", found)
	}
}
