package pki

import (
	"errors"
	"io/fs"
	"strings"

	"airlift/internal/fault"
)

// A File is a file to write to the host. With Link set, it is a symbolic link to
// Link and has no Data.
type File struct {
	Path string // absolute
	Data []byte
	Mode fs.FileMode
	Link string
}

// A Result is the wanted state of a node's files.
type Result struct {
	Files []File   // to be written, in this order
	Kept  []string // existing valid files, which are not changed
}

// modes as in client-go's util/cert and util/keyutil
const (
	certMode fs.FileMode = 0o644
	keyMode  fs.FileMode = 0o600
)

// read returns the file's content, or nil if it does not exist.
func read(host fs.FS, absolute string) ([]byte, error) {
	data, err := fs.ReadFile(host, strings.TrimPrefix(absolute, "/"))
	switch path := (*fs.PathError)(nil); {
	case err == nil:
		return data, nil
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case errors.As(err, &path):
		err = path.Err // without its relative path
	}
	hint := ""
	if errors.Is(err, fs.ErrPermission) {
		hint = "run it as root"
	}
	return nil, fault.New(fault.Failure, "reading %s: %w", absolute, err).Hint(hint)
}
