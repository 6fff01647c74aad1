package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"airlift/bundle/atomicfile"
	"airlift/installer/config"
)

// keepOriginal saves a copy of an existing file that Airlift did not write, and
// returns the copy's path. It copies again on every call: the copy of an
// interrupted run may be older than the file.
func (h *Host) keepOriginal(path string) (string, error) {
	if h.outputOnly {
		return "", nil
	}
	kept := filepath.Join(originalsDir, path)
	dst := h.Path(kept)
	err := h.Records().makeState()
	if err == nil {
		err = os.MkdirAll(filepath.Dir(dst), 0o700)
	}
	if err == nil {
		err = copyFile(h.Path(path), dst)
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
	_, made := h.Records().recorded(kindOwned, path)
	e, known := h.Records().recorded(kindFile, path)
	switch {
	case known && (e.wrote(now) || !e.Pending && isLink(now) && isLink(e.SHA256)):
		return "", nil // a changed link has no content to lose
	case known && (!e.Pending || e.Original == "" && !made):
		return "", h.saveEdited(path, now, warn)
	case made || h.savedCopy(path, now) != "":
		return "", nil
	}
	// While a write is pending that replaces an original, unknown content existed
	// before that write.
	if original, err = h.keepOriginal(path); err == nil && original != "" {
		warn("%s existed before Airlift wrote it; it is replaced, and reset restores it from %s", path, original)
	}
	return original, err
}

// saveEdited copies an edited file, with the given sum, to a free name before it is
// replaced, and records the copy. It leaves out files that components change
// themselves; most of those contain keys.
func (h *Host) saveEdited(path, now string, warn warnFunc) error {
	dir := filepath.Dir(path)
	if h.Removal().regenerated(path) && dir != config.ManifestsDir && dir != config.KubeletDir {
		return nil
	}
	if dir == config.ManifestsDir { // the kubelet would run the copy too
		dir = config.KubernetesDir
	}
	saved := h.savedCopy(path, now)
	if saved == "" {
		saved = filepath.Join(dir, filepath.Base(freeName(h.Path(filepath.Join(dir, filepath.Base(path))))))
		place, err := h.place(saved)
		if err == nil {
			err = h.Records().record(entry{Kind: kindSaved, Name: saved, Contents: path})
		}
		if err == nil {
			err = copyFile(h.Path(path), place)
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
	for _, e := range h.Records().entries(kindSaved) {
		if e.Contents != path {
			continue
		}
		if is, err := sumAt(h.Path(e.Name)); err == nil && is == sum {
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

// putBack undoes a file entry: it removes Airlift's content and restores the
// original, if there was one. It may be interrupted and called again. Content
// that others wrote since is saved, unless components regenerate it; note names
// the saved file.
func (h *Host) putBack(e entry) (note string, err error) {
	path, err := h.place(e.Name)
	if err != nil {
		return "", fmt.Errorf("removing %s: %w", e.Name, err)
	}
	kept := h.Path(e.Original)
	if e.Original != "" && !exists(kept) {
		return "", nil // an interrupted reset restored it already
	}
	ours, err := h.isOurs(e)
	if err != nil {
		return "", fmt.Errorf("removing %s: %w", e.Name, err)
	}
	if !ours && !h.Removal().regenerated(e.Name) {
		saved, err := saveAside(path)
		if err != nil {
			return "", fmt.Errorf("saving the edited %s: %w", e.Name, err)
		}
		note = e.Name + " was edited; it is saved as " + filepath.Join(filepath.Dir(e.Name), filepath.Base(saved))
	}
	if e.Original == "" {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return note, fmt.Errorf("removing %s: %w", e.Name, err)
		}
		return note, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return note, fmt.Errorf("restoring the original %s: %w", e.Name, err)
	}
	if err := moveFile(kept, path); err != nil {
		return note, fmt.Errorf("restoring the original %s: %w", e.Name, err)
	}
	return note, nil
}

// isOurs reports whether the file of an entry can be removed without a loss: it
// does not exist, Airlift wrote it, or it is the original, not replaced yet.
func (h *Host) isOurs(e entry) (bool, error) {
	now, err := sumAt(h.Path(e.Name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return true, nil
	case errors.Is(err, errNotRegular):
		return false, nil
	case err != nil:
		return false, err
	case e.wrote(now), isLink(now) && isLink(e.SHA256): // a changed link has no content to lose
		return true, nil
	case e.Original == "":
		return false, nil
	}
	original, err := sumAt(h.Path(e.Original))
	return now == original, err
}

// savedSuffix is added to the name of an edited file.
const savedSuffix = ".airlift-saved"

// savedName is the ith name under which an edited file is saved, from 0.
func savedName(path string, i int) string {
	if i == 0 {
		return path + savedSuffix
	}
	return fmt.Sprintf("%s%s.%d", path, savedSuffix, i)
}

// freeName returns the first saved name that no file has.
func freeName(path string) string {
	for i := 0; ; i++ {
		if saved := savedName(path, i); !exists(saved) {
			return saved
		}
	}
}

// saveAside renames a file to a free name and returns that name.
func saveAside(path string) (string, error) {
	for {
		saved := freeName(path)
		err := unix.Renameat2(unix.AT_FDCWD, path, unix.AT_FDCWD, saved, unix.RENAME_NOREPLACE)
		if errors.Is(err, unix.EINVAL) { // not every file system supports it
			err = os.Rename(path, saved)
		}
		if !errors.Is(err, unix.EEXIST) {
			return saved, err
		}
	}
}

// moveFile renames a file, or copies it to another file system.
func moveFile(from, to string) error {
	err := os.Rename(from, to)
	if err == nil {
		return atomicfile.SyncDir(filepath.Dir(to))
	}
	if !errors.Is(err, unix.EXDEV) {
		return err
	}
	if err := copyFile(from, to); err != nil {
		return err
	}
	return os.Remove(from)
}

// copyFile copies a file with its owner, mode, extended attributes and time, or a
// symbolic link, and atomically replaces the file at the other path.
func copyFile(from, to string) error {
	info, err := os.Lstat(from)
	if err != nil {
		return err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return replaceLink(to, target)
	}
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	f, err := stageBytes(to, data, info.Mode())
	if err != nil {
		return err
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); ok {
		if err = f.Chown(int(owner.Uid), int(owner.Gid)); err == nil {
			err = f.Chmod(info.Mode()) // chown clears the setuid bit
		}
	}
	if err == nil {
		err = copyAttributes(from, f.File)
	}
	if err == nil {
		err = os.Chtimes(f.Name(), time.Time{}, info.ModTime())
	}
	if err != nil {
		f.discard()
		return err
	}
	return f.settle()
}

// copyAttributes copies extended attributes: capabilities, SELinux labels, ACLs.
// chown clears some of them, so it comes first.
func copyAttributes(from string, to *os.File) error {
	names, err := listAttributes(from)
	if errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the extended attributes of %s: %w", from, err)
	}
	for _, name := range names {
		value, err := readAttribute(from, name)
		if err == nil {
			err = unix.Fsetxattr(int(to.Fd()), name, value, 0)
		}
		if err != nil {
			return fmt.Errorf("copying the extended attribute %s of %s: %w", name, from, err)
		}
	}
	return nil
}

func listAttributes(path string) ([]string, error) {
	size, err := unix.Llistxattr(path, nil)
	if err != nil || size == 0 {
		return nil, err
	}
	list := make([]byte, size)
	if size, err = unix.Llistxattr(path, list); err != nil {
		return nil, err
	}
	return strings.FieldsFunc(string(list[:size]), func(r rune) bool { return r == 0 }), nil
}

func readAttribute(path, name string) ([]byte, error) {
	size, err := unix.Lgetxattr(path, name, nil)
	if err != nil || size == 0 {
		return nil, err
	}
	value := make([]byte, size)
	size, err = unix.Lgetxattr(path, name, value)
	return value[:max(size, 0)], err
}
