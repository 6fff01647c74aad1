package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// WriteSymlink makes path a symbolic link to target, in one step, and says
// whether anything changed. Reset removes it.
func (h *Host) WriteSymlink(path, target string) (changed bool, err error) {
	dst := h.Path(path)
	if old, err := os.Readlink(dst); err == nil && old == target {
		return false, nil
	}
	if err := h.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return false, err
	}
	if err := h.own(path); err != nil {
		return false, err
	}
	next := dst + ".airlift-new"
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("linking %s: %w", path, err)
	}
	if err := os.Symlink(target, next); err != nil {
		return false, fmt.Errorf("linking %s: %w", path, err)
	}
	if err := os.Rename(next, dst); err != nil {
		return false, fmt.Errorf("linking %s: %w", path, err)
	}
	return true, nil
}
