package uninstall

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"airlift/installer/host"
	"airlift/installer/host/filesystem"
	"airlift/installer/host/ledger"
)

// putBack undoes a file entry: it removes Airlift's content and restores the
// original, if there was one. It may be interrupted and called again. Content
// that others wrote since is saved, unless components regenerate it; note names
// the saved file.
func putBack(h *host.Host, e ledger.Entry) (note string, err error) {
	path, err := h.Place(e.Name)
	if err != nil {
		return "", fmt.Errorf("removing %s: %w", e.Name, err)
	}
	kept := h.Path(e.Original)
	if e.Original != "" && !filesystem.Exists(kept) {
		return "", nil // an interrupted reset restored it already
	}
	ours, err := isOurs(h, e)
	if err != nil {
		return "", fmt.Errorf("removing %s: %w", e.Name, err)
	}
	if !ours && !h.Records().Regenerated(e.Name) {
		saved, err := filesystem.SaveAside(path)
		if err != nil {
			return "", fmt.Errorf("saving the edited %s: %w", e.Name, err)
		}
		note = e.Name + " was edited; it is saved as " + filepath.Join(filepath.Dir(e.Name), filepath.Base(saved))
	}
	if e.Original == "" {
		if err := h.Change(e.Name, func() error { return os.Remove(path) }); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return note, fmt.Errorf("removing %s: %w", e.Name, err)
		}
		return note, nil
	}
	return note, restoreOriginal(h, e)
}

// restoreOriginal gives the original of an entry its path again.
func restoreOriginal(h *host.Host, e ledger.Entry) error {
	path, err := h.Place(e.Name)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o755)
	}
	if err == nil {
		err = h.Change(e.Name, func() error { return filesystem.Move(h.Path(e.Original), path) })
	}
	if err != nil {
		return fmt.Errorf("restoring the original %s: %w", e.Name, err)
	}
	return nil
}

// isOurs reports whether the file of an entry can be removed without a loss: it
// does not exist, Airlift wrote it, or it is the original, not replaced yet.
func isOurs(h *host.Host, e ledger.Entry) (bool, error) {
	now, err := filesystem.Sum(h.Path(e.Name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return true, nil
	case errors.Is(err, filesystem.ErrNotRegular):
		return false, nil
	case err != nil:
		return false, err
	case e.Wrote(now), filesystem.IsLink(now) && filesystem.IsLink(e.SHA256): // a changed link has no content to lose
		return true, nil
	case e.Original == "":
		return false, nil
	}
	original, err := filesystem.Sum(h.Path(e.Original))
	return now == original, err
}
