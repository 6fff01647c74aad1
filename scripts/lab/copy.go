package lab

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strconv"

	"golang.org/x/sys/unix"
)

// CopyIn copies a file from this machine to an absolute path on the host, with the given
// mode, and returns its size in bytes. It creates missing directories. The kernel copies
// from file to file, without a copy in memory.
func (h *Host) CopyIn(ctx context.Context, local, remote string, mode fs.FileMode) (int64, error) {
	n, err := h.copyIn(ctx, local, remote, mode)
	if err != nil {
		return n, fmt.Errorf("copying %s to %s:%s: %w", local, h.Name, remote, err)
	}
	return n, nil
}

func (h *Host) copyIn(ctx context.Context, local, remote string, mode fs.FileMode) (int64, error) {
	if _, err := h.Output(ctx, "mkdir", "-p", path.Dir(remote)); err != nil {
		return 0, err
	}
	from, err := os.Open(local)
	if err != nil {
		return 0, err
	}
	defer from.Close()
	to, err := h.create(remote, mode)
	if err != nil {
		return 0, err
	}
	stop := context.AfterFunc(ctx, func() { to.Close() }) // ends the copy
	defer stop()
	n, err := io.Copy(to, from)
	if err == nil {
		err = to.Chmod(mode) // regardless of the umask
	}
	if cause := context.Cause(ctx); cause != nil {
		return n, cause
	}
	if closed := to.Close(); err == nil {
		err = closed
	}
	return n, err
}

// create creates a file in the host's file system: through the host's mounts, with absolute
// symlinks relative to the host's root.
func (h *Host) create(remote string, mode fs.FileMode) (*os.File, error) {
	root, err := unix.Open("/proc/"+strconv.Itoa(h.leader())+"/root", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(root)
	dir, err := unix.Openat2(root, path.Dir(remote), &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT})
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	// A running executable cannot be overwritten, only replaced.
	if err := unix.Unlinkat(dir, path.Base(remote), 0); err != nil && err != unix.ENOENT {
		return nil, err
	}
	fd, err := unix.Openat(dir, path.Base(remote), unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, uint32(mode.Perm()))
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), remote), nil
}
