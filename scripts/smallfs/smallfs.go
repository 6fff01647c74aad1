// Package smallfs mounts small file systems for tests of full disks.
package smallfs

import (
	"fmt"
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
