// Package smallfs mounts small file systems for tests of full disks and of drives without modes.
package smallfs

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"airlift/scripts/rig"
	"golang.org/x/sys/unix"
)

// Small returns a directory on a separate file system of size bytes, a multiple of 4096.
// Only root can mount one.
func Small(t testing.TB, size int64) string {
	t.Helper()
	rig.Root(t)
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// WithoutModes returns a directory on a file system that has neither modes of files nor hard links, as
// FAT on a USB drive: exFAT, in user space, because not every kernel has FAT.
func WithoutModes(t testing.TB) string {
	t.Helper()
	rig.Root(t)
	format, mount, losetup := rig.Tool(t, "mkfs.exfat"), rig.Tool(t, "mount.exfat-fuse"), rig.Tool(t, "losetup")
	image, dir := filepath.Join(t.TempDir(), "image"), t.TempDir()
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, 16<<20)); err != nil {
		t.Fatal(err)
	}
	run := func(name string, args ...string) string {
		out, err := exec.Command(name, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s %q: %v\n%s", name, args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	run(format, image)
	device := run(losetup, "--find", "--show", image)
	t.Cleanup(func() { run(losetup, "--detach", device) })
	run(mount, "-o", "umask=022", device, dir)
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}
