// Package filesystem reads and writes files below the root directory of a host, and files that the user
// names. It writes to a temporary file, syncs and renames it, and follows no link of another user.
// It records nothing: package host does that.
package filesystem

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"airlift/internal/fault"
)

// A Root is the directory of a host's root file system: "/" for this machine.
type Root string

// Path returns the path in this process for a path of the host.
func (r Root) Path(p string) string { return filepath.Join(string(r), p) }

// Place returns the resolved path at which a file of the host is written. If the
// host is a directory, no link may lead out of it.
func (r Root) Place(path string) (string, error) {
	dir, err := enterDir(r.Path(filepath.Dir(path)))
	if err != nil {
		return "", err
	}
	if r != "/" {
		root, err := enterDir(string(r))
		if err != nil {
			return "", err
		}
		if dir != root && !strings.HasPrefix(dir, root+"/") {
			return "", fault.New(fault.Preflight, "a symbolic link leads from %s to %s, outside the root directory", r.Path(path), dir).Hint("use relative links")
		}
	}
	return filepath.Join(dir, filepath.Base(path)), nil
}

// CheckDir returns why root must not write into a directory of the host, which
// may be missing: another user could redirect the write.
func (r Root) CheckDir(dir string) error {
	_, err := r.Place(filepath.Join(dir, "file"))
	return err
}

// ReadOnly reports whether a path is on a file system that is mounted read-only. The path need not
// exist.
func (r Root) ReadOnly(path string) bool {
	for path = filepath.Clean(path); ; path = filepath.Dir(path) {
		var st unix.Statfs_t
		err := unix.Statfs(r.Path(path), &st)
		if err == nil {
			return int64(st.Flags)&unix.ST_RDONLY != 0
		}
		if !errors.Is(err, fs.ErrNotExist) || path == filepath.Dir(path) {
			return false
		}
	}
}

// MakeDir creates a directory for Airlift's own files, with its missing parents.
func (r Root) MakeDir(dir string, mode fs.FileMode) error {
	if _, err := r.Place(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(r.Path(dir), mode); err != nil {
		return err
	}
	return r.CheckDir(dir)
}
