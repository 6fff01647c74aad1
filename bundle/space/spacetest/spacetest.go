// Package spacetest has small file systems for tests of what a full one does.
package spacetest

import (
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

// Small returns a directory on a file system of its own that has size bytes, a
// multiple of 4096. Without the permission to mount one, the test is skipped.
func Small(t testing.TB, size int64) string {
	t.Helper()
	dir := t.TempDir()
	err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size))
	if errors.Is(err, unix.EPERM) {
		t.Skip("mounting takes root")
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
