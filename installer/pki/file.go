package pki

import (
	"bytes"
	"errors"
	"io/fs"
	"path"
	"strings"
	"time"

	"airlift/fault"
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

// Overlay returns host with files added, as if they had been written: in a dry
// run, later steps read the files of earlier ones.
func Overlay(host fs.FS, files ...File) fs.FS {
	o := overlay{host: host, files: make(map[string]File, len(files))}
	for _, f := range files {
		o.files[strings.TrimPrefix(f.Path, "/")] = f
	}
	return o
}

type overlay struct {
	host  fs.FS
	files map[string]File
}

func (o overlay) Open(name string) (fs.File, error) {
	f, ok := o.files[name]
	if !ok {
		return o.host.Open(name)
	}
	if f.Link != "" {
		target := f.Link
		if !path.IsAbs(target) {
			target = path.Join("/", path.Dir(name), target)
		}
		return o.Open(strings.TrimPrefix(target, "/"))
	}
	return &openFile{bytes.NewReader(f.Data), f}, nil
}

// openFile is a File that is being read.
type openFile struct {
	*bytes.Reader
	file File
}

func (f *openFile) Stat() (fs.FileInfo, error) { return fileInfo{f.file}, nil }
func (f *openFile) Close() error               { return nil }

type fileInfo struct{ file File }

func (i fileInfo) Name() string       { return path.Base(i.file.Path) }
func (i fileInfo) Size() int64        { return int64(len(i.file.Data)) }
func (i fileInfo) Mode() fs.FileMode  { return i.file.Mode }
func (i fileInfo) ModTime() time.Time { return time.Time{} }
func (i fileInfo) IsDir() bool        { return false }
func (i fileInfo) Sys() any           { return nil }
