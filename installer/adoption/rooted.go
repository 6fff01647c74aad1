package adoption

import (
	"cmp"
	"errors"
	"io/fs"
	"path"
	"strings"
)

// rooted is a file system in which links, also absolute ones, lead to files below its root. os.DirFS follows an
// absolute link to the file of the machine that the installer runs on, which differs for a host in a directory.
type rooted struct{ fs.FS }

// maxLinks limits the links on a path, as Linux does (path_resolution(7)).
const maxLinks = 40

var errLinks = errors.New("too many levels of symbolic links")

// resolve returns a name without links. name is in the form of io/fs.
func (r rooted) resolve(name string) (string, error) {
	rest, done, links := strings.Split(name, "/"), "", 0
	for len(rest) > 0 {
		part := rest[0]
		rest = rest[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			done = path.Dir("/" + done)[1:]
			continue
		}
		next := path.Join(done, part)
		info, err := fs.Lstat(r.FS, next)
		if err != nil {
			return "", err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			done = next
			continue
		}
		if links++; links > maxLinks {
			return "", &fs.PathError{Op: "open", Path: name, Err: errLinks}
		}
		target, err := fs.ReadLink(r.FS, next)
		if err != nil {
			return "", err
		}
		if path.IsAbs(target) {
			done = ""
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	done = cmp.Or(done, ".")
	return done, nil
}

// Open opens a file by its name in the form of io/fs.
func (r rooted) Open(name string) (fs.File, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	found, err := r.resolve(name)
	if err != nil {
		return nil, err
	}
	return r.FS.Open(found)
}

// place returns the absolute path to which the links of a path lead, or the path itself if it does not exist.
func (r rooted) place(file string) string {
	found, err := r.resolve(strings.TrimPrefix(path.Clean(file), "/"))
	if err != nil {
		return path.Clean(file)
	}
	return "/" + strings.TrimPrefix(found, ".")
}
