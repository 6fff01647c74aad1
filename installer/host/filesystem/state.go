package filesystem

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"airlift/internal/fault"
)

// ReadIfExists reads a file of the host. A file that does not exist is nil.
func (r Root) ReadIfExists(path string) ([]byte, error) {
	data, err := os.ReadFile(r.Path(path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

// ReadState reads a JSON file in which Airlift keeps what a later run needs, and reports whether it
// exists. A damaged file is an error with the hint.
func (r Root) ReadState(path string, into any, hint string) (found bool, err error) {
	data, err := os.ReadFile(r.Path(path))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading %s: %w", path, err)
	}
	if err := decodeState(data, into); err != nil {
		return false, fault.New(fault.Failure, "reading %s: the file is damaged: %w", path, err).Hint(hint)
	}
	return true, nil
}

func decodeState(data []byte, into any) error {
	switch {
	case len(data) == 0:
		return errors.New("it is empty")
	case len(bytes.Trim(data, "\x00")) == 0:
		return errors.New("it has only zero bytes, as after a power failure")
	case string(bytes.TrimSpace(data)) == "null":
		return errors.New("it has no content")
	}
	return json.Unmarshal(data, into)
}

// SetAside is a command that renames a damaged state file. The host then has no such state.
func SetAside(path string) string { return "mv " + path + " " + path + ".damaged" }
