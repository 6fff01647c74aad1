package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// A place can hold an executable file that disappears when its process ends.
type place struct {
	name   string
	create func() (*os.File, error)
}

// places lists the places in the order in which they are tried: memory, directories in
// memory, directories that only root may write to, directories for everyone, and the
// directory of the bundle file at path, which may be on a slow USB drive.
func places(path string) []place {
	list := []place{{"memory", inMemory}}
	for _, dir := range []string{"/dev/shm", "/run", "/usr/local/lib", "/var/lib", "/var/tmp", "/tmp", filepath.Dir(path)} {
		list = append(list, place{dir, func() (*os.File, error) { return unnamed(dir) }})
	}
	return list
}

// unnamed creates an unnamed file in dir, so that nothing remains of it in any case.
func unnamed(dir string) (*os.File, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return nil, err
	}
	if fs.Flags&unix.ST_NOEXEC != 0 {
		return nil, errors.New("mounted noexec")
	}
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_EXCL|unix.O_RDWR|unix.O_CLOEXEC, fileMode)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EISDIR) {
		return unlinked(dir) // FAT, for example, does not support unnamed files
	}
	if err != nil {
		return nil, os.NewSyscallError("open", err)
	}
	return os.NewFile(uintptr(fd), dir), nil
}

// fileMode forbids other users to read or execute the file in a shared directory.
const fileMode = 0o700

// unlinked creates a file in dir and removes its name.
func unlinked(dir string) (*os.File, error) {
	name := filepath.Join(dir, fmt.Sprintf(".airlift-%d", os.Getpid()))
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_RDWR|unix.O_NOFOLLOW, fileMode)
	if err != nil {
		return nil, err
	}
	if err := os.Remove(name); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
