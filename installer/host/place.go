package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"airlift/fault"
)

// Where files may be written. Root must not be led to another place than it
// named, so everything on the way to a file belongs to root or to the user who
// runs this process:
//
//   - a directory that belongs to somebody else is not entered, nor one that
//     everybody may write to. /tmp and its like, with the sticky bit, are fine:
//     there nobody can replace what belongs to another user;
//   - a symbolic link of somebody else's is not followed.
//
// A group that root lets write to a directory is trusted: /usr/local belongs to
// the group staff on some hosts.

// maxLinks is how many symbolic links may follow each other, as in the kernel.
const maxLinks = 40

// walk finds the place that a path leads to, with all symbolic links followed.
// info is nil when nothing is there yet.
func walk(path string) (place string, info fs.FileInfo, err error) {
	if path, err = filepath.Abs(path); err != nil {
		return "", nil, err
	}
	place, rest, links := "/", path, 0
	if info, err = enter("/"); err != nil {
		return "", nil, err
	}
	for {
		rest = strings.TrimLeft(rest, "/")
		if rest == "" {
			return place, info, nil
		}
		if info != nil && info.IsDir() {
			if _, err := enter(place); err != nil {
				return "", nil, err
			}
		} else {
			return "", nil, fmt.Errorf("%s: %w", place, unix.ENOTDIR)
		}
		var name string
		name, rest, _ = strings.Cut(rest, "/")
		next := filepath.Join(place, name) // ".." has no links before it
		info, err = os.Lstat(next)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return filepath.Join(next, rest), nil, nil
		case err != nil:
			return "", nil, err
		case info.Mode()&fs.ModeSymlink == 0:
			place = next
			continue
		}
		if owner, trusted := ownerOf(info); !trusted {
			return "", nil, fault.New(fault.Preflight, "remove it: rm "+next, "%s is a symbolic link that belongs to user %d", next, owner)
		}
		if links++; links > maxLinks {
			return "", nil, fmt.Errorf("%s: %w", path, unix.ELOOP)
		}
		target, err := os.Readlink(next)
		if err != nil {
			return "", nil, err
		}
		if filepath.IsAbs(target) {
			place = "/"
		}
		rest = target + "/" + rest
		if info, err = os.Lstat(place); err != nil {
			return "", nil, err
		}
	}
}

// enter refuses a directory in which somebody else could have prepared links.
func enter(dir string) (fs.FileInfo, error) {
	info, err := os.Lstat(dir)
	if err != nil {
		return nil, err
	}
	if owner, trusted := ownerOf(info); !trusted {
		return nil, fault.New(fault.Preflight, "if nobody else needs it: chown root: "+dir, "the directory %s belongs to user %d", dir, owner)
	}
	if everybodys(info) && info.Mode()&fs.ModeSticky == 0 {
		return nil, fault.New(fault.Preflight, "if nobody else needs it: chmod o-w "+dir, "everybody may write to the directory %s", dir)
	}
	return info, nil
}

func ownerOf(info fs.FileInfo) (uid int, trusted bool) {
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return -1, false
	}
	uid = int(owner.Uid)
	return uid, uid == 0 || uid == os.Geteuid()
}

func everybodys(info fs.FileInfo) bool { return info.Mode().Perm()&0o002 != 0 }

// enterDir is walk for a directory, which may be missing.
func enterDir(path string) (place string, err error) {
	place, info, err := walk(path)
	if err == nil && info != nil {
		if !info.IsDir() {
			return "", fmt.Errorf("%s: %w", place, unix.ENOTDIR)
		}
		_, err = enter(place)
	}
	return place, err
}

// place returns where a file of the host is to be written: in its directory,
// once the links on the way are followed. In a folder that stands for a host,
// no link may lead out of it.
func (h *Host) place(path string) (string, error) {
	dir, err := enterDir(h.Path(filepath.Dir(path)))
	if err != nil {
		return "", err
	}
	if h.root != "/" {
		root, err := enterDir(h.root)
		if err != nil {
			return "", err
		}
		if dir != root && !strings.HasPrefix(dir, root+"/") {
			return "", fault.New(fault.Preflight, "use links that are relative", "a symbolic link leads from %s out to %s", h.Path(path), dir)
		}
	}
	return filepath.Join(dir, filepath.Base(path)), nil
}

// CheckDir reports why root must not write into a directory of the host, which
// may be missing: on the way to it somebody else could lead root elsewhere.
func (h *Host) CheckDir(dir string) error {
	_, err := h.place(filepath.Join(dir, "file"))
	return err
}
