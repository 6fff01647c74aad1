package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// A place is where a program can be put that is gone when it ends.
type place struct {
	name   string
	create func() (*os.File, error)
}

// places are tried in this order: memory; folders that are memory; folders that
// programs are at home in, root's alone; folders of everyone's; that of the
// bundle file at path, which may be on a slow stick.
func places(path string) []place {
	list := []place{{"memory", inMemory}}
	for _, dir := range []string{"/dev/shm", "/run", "/usr/local/lib", "/var/lib", "/var/tmp", "/tmp", filepath.Dir(path)} {
		list = append(list, place{dir, func() (*os.File, error) { return unnamed(dir) }})
	}
	return list
}

// unnamed makes a file in dir that has no name, so that nothing remains of it
// whatever happens.
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
		return unlinked(dir) // FAT, for one, has no files without names
	}
	if err != nil {
		return nil, os.NewSyscallError("open", err)
	}
	return os.NewFile(uintptr(fd), dir), nil
}

// fileMode lets nobody else read or execute what is put in a folder of
// everyone's.
const fileMode = 0o700

// unlinked makes a file in dir and takes its name away.
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
