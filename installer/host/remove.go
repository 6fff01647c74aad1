package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"airlift/bundle/atomicfile"
)

// Remove removes a file that WriteFile wrote; it may be missing. Reset still
// restores the original that WriteFile replaced.
func (h *Host) Remove(path string) error {
	if err := os.Remove(h.Path(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing %s: %w", path, err)
	}
	if e, ok := h.Records().recorded(kindFile, path); ok && e.Original != "" {
		return nil
	}
	return h.Records().forget(kindFile, path)
}

// RemoveTree removes a directory with everything in it, which a component of Kubernetes wrote.
func (h *Host) RemoveTree(path string) error { return h.Removal().removeTree(path) }

// Rename gives a file or directory that a run prepared its final name.
func (h *Host) Rename(from, to string) error {
	place, err := h.place(to)
	if err == nil {
		err = os.Rename(h.Path(from), place)
	}
	if err == nil {
		err = atomicfile.SyncDir(filepath.Dir(place))
	}
	if err != nil {
		return fmt.Errorf("creating %s: %w", to, err)
	}
	return nil
}
