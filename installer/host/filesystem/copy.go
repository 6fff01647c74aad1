package filesystem

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

	"airlift/internal/atomicfile"
)

// savedSuffix is added to the name of an edited file.
const savedSuffix = ".airlift-saved"

// savedName is the ith name under which an edited file is saved, from 0.
func savedName(path string, i int) string {
	if i == 0 {
		return path + savedSuffix
	}
	return fmt.Sprintf("%s%s.%d", path, savedSuffix, i)
}

// FreeName returns the first saved name that no file has.
func FreeName(path string) string {
	for i := 0; ; i++ {
		if saved := savedName(path, i); !Exists(saved) {
			return saved
		}
	}
}

// SaveAside renames a file to a free name and returns that name.
func SaveAside(path string) (string, error) {
	for {
		saved := FreeName(path)
		err := unix.Renameat2(unix.AT_FDCWD, path, unix.AT_FDCWD, saved, unix.RENAME_NOREPLACE)
		if errors.Is(err, unix.EINVAL) { // not every file system supports it
			err = os.Rename(path, saved)
		}
		if !errors.Is(err, unix.EEXIST) {
			return saved, err
		}
	}
}

// Move renames a file, or copies it to another file system.
func Move(from, to string) error {
	err := os.Rename(from, to)
	if err == nil {
		return atomicfile.SyncDir(filepath.Dir(to))
	}
	if !errors.Is(err, unix.EXDEV) {
		return err
	}
	if err := Copy(from, to); err != nil {
		return err
	}
	return os.Remove(from)
}

// Copy copies a file with its owner, mode, extended attributes and time, or a
// symbolic link, and atomically replaces the file at the other path.
func Copy(from, to string) error {
	info, err := os.Lstat(from)
	if err != nil {
		return err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return ReplaceLink(to, target)
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
	return f.Settle()
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
