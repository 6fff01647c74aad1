package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"airlift/bundle/atomicfile"
)

// WriteSymlink atomically makes path a symbolic link to target, and reports
// whether anything changed. Reset removes the link, and restores a file or link
// that it replaced and Airlift did not write.
func (h *Host) WriteSymlink(path, target string) (changed bool, err error) {
	sum := linkSum(target)
	now, _, err := look(h.Path(path))
	if err != nil {
		return false, fmt.Errorf("linking %s: %w", path, err)
	}
	if now == sum {
		return false, h.Records().settled(kindFile, path, sum)
	}
	return true, h.put(entry{Kind: kindFile, Name: path, SHA256: sum}, now, h.warn, func(place string) error { return replaceLink(place, target) })
}

// replaceLink atomically replaces path by a symbolic link.
func replaceLink(path, target string) error {
	next := tempFile(path)
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(target, next); err != nil {
		return err
	}
	if err := os.Rename(next, path); err != nil {
		return err
	}
	return atomicfile.SyncDir(filepath.Dir(path))
}

// isLink reports whether a sum is that of a symbolic link.
func isLink(sum string) bool { return strings.HasPrefix(sum, linkPrefix) }
