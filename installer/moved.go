package installer

import (
	"io/fs"
	"path"
	"strings"
)

// moved shows the files directly in the folder from where they are kept
// instead: in the folder to. Both are absolute.
type moved struct {
	fs.FS
	from, to string
}

func (m moved) Open(name string) (fs.File, error) {
	if path.Dir("/"+name) == m.from {
		name = strings.TrimPrefix(path.Join(m.to, path.Base(name)), "/")
	}
	return m.FS.Open(name)
}
