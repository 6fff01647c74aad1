package interrupt

import (
	"errors"

	"golang.org/x/sys/windows"
)

// closed reports whether a write failed because the pipe was closed.
func closed(err error) bool {
	return errors.Is(err, windows.ERROR_BROKEN_PIPE) || errors.Is(err, windows.ERROR_NO_DATA)
}
