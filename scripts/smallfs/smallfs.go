// Package smallfs mounts small file systems for tests of full disks.
package smallfs

import (
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

// Small returns a directory on a separate file system of size bytes, a multiple of 4096.
// It skips the test if it may not mount one.
func Small(t testing.TB, size int64) string {
	t.Helper()
	dir := t.TempDir()
	err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size))
	if errors.Is(err, unix.EPERM) {
		t.Skip("needs root to mount a file system")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}
