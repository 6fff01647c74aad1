package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"airlift/installer/host/filesystem"
)

// RenewFile replaces a file, and keeps its mode and owner; a missing one gets
// mode. A file that Airlift wrote is recorded again, so that reset recognizes
// it. On a node that Airlift did not install, nothing is recorded.
func (h *Host) RenewFile(path string, data []byte, mode fs.FileMode) error {
	at := h.Path(path)
	info, err := os.Stat(at)
	switch {
	case err == nil:
		mode = info.Mode().Perm()
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("replacing %s: %w", path, err)
	}
	if h.Records().Wrote(path) {
		if _, err := h.WriteFile(path, data, mode); err != nil {
			return err
		}
	} else if err := h.writeCopies(path, data); err != nil {
		return err
	} else if err := filesystem.WriteOutput(at, data, mode); err != nil {
		return fmt.Errorf("replacing %s: %w", path, err)
	}
	if info == nil {
		return nil
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); ok {
		if err := os.Chown(at, int(owner.Uid), int(owner.Gid)); err != nil {
			return fmt.Errorf("restoring the owner of %s: %w", path, err)
		}
	}
	return nil
}

// RenewLink lets a symbolic link that may not be Airlift's refer to another file, with one rename.
func (h *Host) RenewLink(path, target string) error {
	if h.Records().Wrote(path) {
		_, err := h.WriteSymlink(path, target)
		return err
	}
	if err := filesystem.ReplaceLink(h.Path(path), target); err != nil {
		return fmt.Errorf("replacing %s: %w", path, err)
	}
	return nil
}
