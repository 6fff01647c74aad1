package blobs

import (
	"errors"
	"hash"
	"io"
)

// A counter hashes what it passes on. More than the expected size is an error.
type counter struct {
	hash hash.Hash
	w    io.Writer
	n    int64
	most int64
}

var errTooLong = errors.New("the compressed layer is longer than upstream's")

func (c *counter) Write(p []byte) (int, error) {
	if c.n += int64(len(p)); c.n > c.most {
		return 0, errTooLong
	}
	c.hash.Write(p)
	return c.w.Write(p)
}
