package filesystem

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"airlift/internal/fault"
)

// Other users must not be able to redirect root's writes. So every component of
// a path must belong to root or to the user who runs this process:
//
//   - a directory of another user, or a world-writable one, is not entered.
//     Directories with the sticky bit, such as /tmp, are allowed: there, no
//     user can replace another user's files;
//   - a symbolic link of another user is not followed.
//
// Write permission for a group is allowed: on some hosts, /usr/local belongs to
// the group staff.

// maxLinks is the maximum number of symbolic links in a path, as in the kernel.
const maxLinks = 40

// Resolve resolves a path with all its symbolic links. info is nil if nothing
// exists at the resulting place.
func Resolve(path string) (place string, info fs.FileInfo, err error) {
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
			return "", nil, fault.New(fault.Preflight, "%s is a symbolic link that belongs to user %d", next, owner).Hint("remove it: rm " + next)
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

// enter refuses a directory in which another user could create links.
func enter(dir string) (fs.FileInfo, error) {
	info, err := os.Lstat(dir)
	if err != nil {
		return nil, err
	}
	if owner, trusted := ownerOf(info); !trusted {
		return nil, fault.New(fault.Preflight, "the directory %s belongs to user %d", dir, owner).Hint("if no other user needs it: chown root: " + dir)
	}
	if worldWritable(info) && info.Mode()&fs.ModeSticky == 0 {
		return nil, fault.New(fault.Preflight, "every user may write to the directory %s", dir).Hint("if no other user needs it: chmod o-w " + dir)
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

func worldWritable(info fs.FileInfo) bool { return info.Mode().Perm()&0o002 != 0 }

// enterDir is Resolve for a directory, which may be missing.
func enterDir(path string) (place string, err error) {
	place, info, err := Resolve(path)
	if err == nil && info != nil {
		if !info.IsDir() {
			return "", fmt.Errorf("%s: %w", place, unix.ENOTDIR)
		}
		_, err = enter(place)
	}
	return place, err
}
