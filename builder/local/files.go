package local

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// files are the files of an image layout or an archive. Names have slashes.
type files interface {
	// open returns a file and its size. If there is none, the error is fs.ErrNotExist.
	open(name string) (io.ReadCloser, int64, error)
	// path names a file in messages.
	path(name string) string
	io.Closer
}

type directory string

func (d directory) path(name string) string {
	return filepath.Join(string(d), filepath.FromSlash(name))
}

func (d directory) open(name string) (io.ReadCloser, int64, error) {
	path := d.path(name)
	// Opening a FIFO would wait for a writer.
	i, err := os.Stat(path)
	if err != nil {
		return nil, 0, err
	}
	if !i.Mode().IsRegular() {
		return nil, 0, fmt.Errorf("%s is not a regular file", path)
	}
	f, err := os.Open(path)
	return f, i.Size(), err
}

func (directory) Close() error { return nil }

func has(f files, name string) bool {
	r, _, err := f.open(name)
	if err == nil {
		r.Close()
	}
	return !errors.Is(err, fs.ErrNotExist)
}

// open opens a file, which must exist.
func open(f files, name string) (io.ReadCloser, int64, error) {
	r, size, err := f.open(name)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%s is missing", f.path(name))
	}
	return r, size, err
}

func readSmall(f files, name string, max int64) ([]byte, error) {
	r, size, err := open(f, name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if size > max {
		return nil, fmt.Errorf("%s has %d bytes, more than the limit of %d", f.path(name), size, max)
	}
	b, err := io.ReadAll(io.LimitReader(r, max))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", f.path(name), err)
	}
	return b, nil
}
