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
	const mode = 0o700
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_EXCL|unix.O_RDWR|unix.O_CLOEXEC, mode)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EISDIR) {
		// The file system, FAT for one, has no files without names.
		name := filepath.Join(dir, fmt.Sprintf(".airlift-%d", os.Getpid()))
		if fd, err = unix.Open(name, unix.O_CREAT|unix.O_EXCL|unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW, mode); err == nil {
			err = unix.Unlink(name)
		}
	}
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), dir), nil
}
