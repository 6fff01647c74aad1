//go:build !windows

package atomicfile

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// hold locks a new file until the result is closed, or the process ends. It keeps the lock when file is
// closed. ok is false if another process has removed the file.
func hold(file *os.File) (held io.Closer, ok bool) {
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return file, true // the lock ends earlier
	}
	again := os.NewFile(uintptr(fd), file.Name())
	err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
	// Not every file system has locks. Then removeUnheld does not get one either.
	if !errors.Is(err, unix.EWOULDBLOCK) && exists(file) {
		return again, true
	}
	again.Close()
	return nil, false
}

func exists(file *os.File) bool {
	i, err := file.Stat()
	if err != nil {
		return true
	}
	now, err := os.Stat(file.Name())
	return err == nil && os.SameFile(i, now)
}

// removeUnheld removes a file unless a process holds it.
func removeUnheld(name string) {
	f, err := os.OpenFile(name, os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer f.Close()
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
		os.Remove(name)
	}
}
