package space

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/windows"
)

// full reports whether err means that a volume is full, or a user's part of it. ENOSPC is
// how package bundle reports it for the zstd command.
func full(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, windows.ERROR_DISK_FULL) || errors.Is(err, windows.ERROR_HANDLE_DISK_FULL) ||
		errors.Is(err, windows.ERROR_DISK_QUOTA_EXCEEDED)
}

// Free returns the number of bytes that the user can still write below dir.
func Free(dir string) (int64, error) {
	path, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return 0, fmt.Errorf("reading the free space of %s: %w", dir, err)
	}
	var free uint64
	if err := windows.GetDiskFreeSpaceEx(path, &free, nil, nil); err != nil {
		return 0, fmt.Errorf("reading the free space of %s: %w", dir, err)
	}
	return int64(free), nil
}

// Shared reports whether two directories are on one volume.
func Shared(a, b string) bool {
	x, err1 := volume(a)
	y, err2 := volume(b)
	return err1 == nil && err2 == nil && strings.EqualFold(x, y)
}

// volume returns the mount point of dir's volume, such as C:\, also of a volume that is
// mounted in a directory.
func volume(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	path, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return "", err
	}
	root := make([]uint16, len(dir)+windows.MAX_PATH)
	if err := windows.GetVolumePathName(path, &root[0], uint32(len(root))); err != nil {
		return "", err
	}
	return windows.UTF16ToString(root), nil
}
