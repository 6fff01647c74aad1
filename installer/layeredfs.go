package installer

import (
	"errors"
	"io/fs"
	"path"
	"strings"
)

// layered is a file system that opens each file in the first layer that has it.
type layered []fs.FS

func (l layered) Open(name string) (fs.File, error) {
	err := fs.ErrNotExist
	for _, layer := range l {
		var f fs.File
		if f, err = layer.Open(name); !errors.Is(err, fs.ErrNotExist) {
			return f, err
		}
	}
	return nil, err
}

// redirected is a file system that reads the files directly in the directory
// from out of the directory to. Both paths are absolute.
type redirected struct {
	fs.FS
	from, to string
}

func (r redirected) Open(name string) (fs.File, error) {
	if path.Dir("/"+name) == r.from {
		name = strings.TrimPrefix(path.Join(r.to, path.Base(name)), "/")
	}
	return r.FS.Open(name)
}
