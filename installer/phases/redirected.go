package phases

import (
	"io/fs"
	"path"
	"strings"
)

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
