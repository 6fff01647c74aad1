//go:build !windows

package fetch

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// createTemp creates a file with a new name in dir, for the user only.
func createTemp(dir string) (*os.File, error) { return os.CreateTemp(dir, "new.*") }

// openFile opens a file for reading and writing, and creates it if it does not exist.
func openFile(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
}

// tryLock locks an open file until it is closed, and reports whether it could. It returns
// false and no error if another process holds the lock.
func tryLock(f *os.File) (bool, error) {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}
