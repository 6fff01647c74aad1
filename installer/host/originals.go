package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"airlift/installer/config"
	"airlift/installer/host/filesystem"
	"airlift/installer/host/ledger"
)

// keepOriginal saves a copy of an existing file that Airlift did not write, and
// returns the copy's path. It copies again on every call: the copy of an
// interrupted run may be incomplete, or older than the file.
func (h *Host) keepOriginal(path string) (string, error) {
	if h.outputOnly {
		return "", nil
	}
	kept := filepath.Join(ledger.OriginalsDir, path)
	dst := h.Path(kept)
	err := h.makeState()
	if err == nil {
		err = os.MkdirAll(filepath.Dir(dst), 0o700)
	}
	if err == nil {
		err = filesystem.Copy(h.Path(path), dst)
	}
	if err != nil {
		return "", fmt.Errorf("saving the original %s: %w", path, err)
	}
	return kept, nil
}

// keepReplaced keeps the file at path, with the given sum, before a write replaces
// it, unless its content is Airlift's. A file that Airlift did not write is saved
// as the original, whose path is returned. A file that was edited since Airlift
// wrote it is saved next to it.
func (h *Host) keepReplaced(path, now string, warn warnFunc) (original string, err error) {
	_, made := h.Records().Find(ledger.Owned, path)
	e, known := h.Records().Find(ledger.File, path)
	switch {
	case known && (e.Wrote(now) || !e.Pending && filesystem.IsLink(now) && filesystem.IsLink(e.SHA256)):
		return "", nil // a changed link has no content to lose
	case known && (!e.Pending || e.Original == "" && !made || hasOtherOriginal(h, e, now)):
		return "", h.saveEdited(path, now, warn)
	case made || h.savedCopy(path, now) != "":
		return "", nil
	}
	// While a write is pending that replaces an original, the original may still be there.
	if original, err = h.keepOriginal(path); err == nil && original != "" && !h.Records().Adopted().Found(path, now) {
		warn("%s existed before Airlift wrote it; it is replaced, and reset restores it from %s", path, original)
	}
	return original, err
}

// hasOtherOriginal reports whether the original of an entry is kept, and is not the content with the given sum. A copy is
// complete before the ledger has its path. So the content is an edit, of Airlift's file or of the original.
func hasOtherOriginal(h *Host, e ledger.Entry, now string) bool {
	if e.Original == "" {
		return false
	}
	original, err := filesystem.Sum(h.Path(e.Original))
	return !errors.Is(err, fs.ErrNotExist) && original != now
}

// keepAdopted keeps the binary at path before another one replaces it, if adopt found it and Airlift did not write it.
// It returns the path of the copy, or "".
func keepAdopted(h *Host, path string) (original string, err error) {
	if h.Records().Adopted() == nil {
		return "", nil
	}
	sum, err := filesystem.DigestFile(h.Path(path))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", path, err)
	}
	if e, ok := h.Records().Find(ledger.Binary, path); ok && e.Wrote(sum) || !h.Records().Adopted().Found(path, sum) {
		return "", nil
	}
	return h.keepOriginal(path)
}

// saveEdited copies an edited file, with the given sum, to a free name before it is
// replaced, and records the copy. It leaves out files that components change
// themselves; most of those contain keys.
func (h *Host) saveEdited(path, now string, warn warnFunc) error {
	dir := filepath.Dir(path)
	if h.Records().Regenerated(path) && dir != config.ManifestsDir && dir != config.KubeletDir {
		return nil
	}
	if dir == config.ManifestsDir { // the kubelet would run the copy too
		dir = config.KubernetesDir
	}
	saved := h.savedCopy(path, now)
	if saved == "" {
		saved = filepath.Join(dir, filepath.Base(filesystem.FreeName(h.Path(filepath.Join(dir, filepath.Base(path))))))
		place, err := h.Place(saved)
		if err == nil {
			err = h.Records().Record(ledger.Entry{Kind: ledger.Saved, Name: saved, Contents: path})
		}
		if err == nil {
			err = filesystem.Copy(h.Path(path), place)
		}
		if err != nil {
			return fmt.Errorf("saving the edited %s: %w", path, err)
		}
	}
	warn("%s was edited after Airlift wrote it; it is replaced, and the edited file is saved as %s", path, saved)
	return nil
}

// savedCopy returns the copy of an edited file with the given sum, or "" if there
// is none.
func (h *Host) savedCopy(path, sum string) string {
	for _, e := range h.Records().Entries(ledger.Saved) {
		if e.Contents != path {
			continue
		}
		if is, err := filesystem.Sum(h.Path(e.Name)); err == nil && is == sum {
			return e.Name
		}
	}
	return ""
}

// A warnFunc receives a warning for the user.
type warnFunc = func(format string, args ...any)

func (h *Host) warn(format string, args ...any) {
	if h.Warn != nil {
		h.Warn(format, args...)
	}
}
