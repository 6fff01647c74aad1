package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Remove removes a file that WriteFile made. One that is gone is fine. An
// original that it replaced still comes back with reset.
func (h *Host) Remove(path string) error {
	if err := os.Remove(h.Path(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing %s: %w", path, err)
	}
	if e, ok := h.recorded(kindFile, path); ok && e.Original != "" {
		return nil
	}
	return h.forget(kindFile, path)
}
