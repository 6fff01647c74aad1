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
)

// keepOriginal copies an existing file that is not ours aside and returns where.
// It may be called again for the same file: until the file is replaced, a copy
// of an interrupted run may be older than the file.
func (h *Host) keepOriginal(path string) (string, error) {
	if h.folder {
		return "", nil
	}
	kept := filepath.Join(originalsDir, path)
	dst := h.Path(kept)
	err := h.makeState()
	if err == nil {
		err = os.MkdirAll(filepath.Dir(dst), 0o700)
	}
	if err == nil {
		err = copyFile(h.Path(path), dst)
	}
	if err == nil {
		err = syncDir(filepath.Dir(dst))
	}
	if err != nil {
		return "", fmt.Errorf("keeping the original %s: %w", path, err)
	}
	return kept, nil
}

// putBack ends what an entry says about a file: our content goes, and the
// original returns, if there was one. It may be interrupted at any point and
// called again. What others wrote there since is saved, unless it is what
// programs regenerate; note says where.
func (h *Host) putBack(e entry) (note string, err error) {
	path, err := h.place(e.Name)
	if err != nil {
		return "", fmt.Errorf("removing %s: %w", e.Name, err)
	}
	kept := h.Path(e.Original)
	if e.Original != "" && !exists(kept) {
		return "", nil // an earlier reset ended after putting it back
	}
	ours, err := h.isOurs(e)
	if err != nil {
		return "", fmt.Errorf("removing %s: %w", e.Name, err)
	}
	if !ours && !h.regenerated(e.Name) {
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
		return note, fmt.Errorf("putting the original %s back: %w", e.Name, err)
	}
	if err := moveFile(kept, path); err != nil {
		return note, fmt.Errorf("putting the original %s back: %w", e.Name, err)
	}
	return note, nil
}

// isOurs reports whether nothing is lost when the file of an entry goes: it is
// not there, or ours, or the original that was not replaced yet.
func (h *Host) isOurs(e entry) (bool, error) {
	now, err := sumAt(h.Path(e.Name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return true, nil
	case errors.Is(err, errNotRegular):
		return false, nil
	case err != nil:
		return false, err
	case e.wrote(now), isLink(now) && isLink(e.SHA256): // a link of ours that leads elsewhere now holds nothing
		return true, nil
	case e.Original == "":
		return false, nil
	}
	original, err := sumAt(h.Path(e.Original))
	return now == original, err
}

// saveAside gives a file a name that is free and returns it.
func saveAside(path string) (string, error) {
	for i := 0; ; i++ {
		saved := path + savedSuffix
		if i > 0 {
			saved = fmt.Sprintf("%s.%d", saved, i)
		}
		err := unix.Renameat2(unix.AT_FDCWD, path, unix.AT_FDCWD, saved, unix.RENAME_NOREPLACE)
		if errors.Is(err, unix.EINVAL) && !exists(saved) { // not every file system can
			err = os.Rename(path, saved)
		}
		if !errors.Is(err, unix.EEXIST) && !errors.Is(err, unix.EINVAL) {
			return saved, err
		}
	}
}

// moveFile renames, or copies where the two are on different file systems.
func moveFile(from, to string) error {
	err := os.Rename(from, to)
	if !errors.Is(err, unix.EXDEV) {
		return err
	}
	if err := copyFile(from, to); err != nil {
		return err
	}
	if err := syncDir(filepath.Dir(to)); err != nil {
		return err
	}
	return os.Remove(from)
}

// copyFile copies a file with its owner, mode, extended attributes and time, or a
// symbolic link, and replaces what is at the other path, in one step.
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
