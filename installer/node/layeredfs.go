package node

import (
	"errors"
	"io/fs"
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
