package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Remove removes a file that WriteFile made. One that is gone is fine.
func (h *Host) Remove(path string) error {
	if err := os.Remove(h.Path(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing %s: %w", path, err)
	}
	return h.forget(kindFile, path)
}
