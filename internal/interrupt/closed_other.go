//go:build !windows

package interrupt

import (
	"errors"
	"syscall"
)

// closed reports whether a write failed because the pipe or the terminal was closed.
func closed(err error) bool { return errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.EIO) }
