package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"airlift/fault"
)

// Outputs are files that the user names, anywhere. Reset does not remove them.

// WriteOutput writes a file that the user named, in one step that a crash
// cannot split. A symbolic link of the user's own or of root's stays one: what
// it leads to is replaced.
func WriteOutput(path string, data []byte, mode fs.FileMode) error {
	place, err := outputPlace(path)
	if err != nil {
		return err
	}
	return replaceFile(place, data, mode)
}

// CheckOutput finds out whether WriteOutput could write a file, and leaves
// nothing behind.
func CheckOutput(path string) error {
	place, err := outputPlace(path)
	if err != nil {
		return err
	}
	f, err := stageBytes(place, nil, 0o600)
	if failed := (*fs.PathError)(nil); errors.As(err, &failed) {
		return failed.Err // the path is the temporary file's
	}
	if err == nil {
		f.discard()
	}
	return err
}

// outputPlace finds the place for an output. A device or a pipe is not one:
// a file would replace it. In a directory of everybody's, such as /tmp, a file
// of somebody else's is not replaced.
func outputPlace(path string) (string, error) {
	place, info, err := walk(path)
	switch {
	case err != nil || info == nil:
		return place, outputFault(err)
	case !info.Mode().IsRegular():
		return "", outputFault(errNotRegular)
	}
	dir, err := os.Lstat(filepath.Dir(place))
	if err != nil {
		return "", err
	}
	if owner, trusted := ownerOf(info); !trusted && everybodys(dir) {
		return "", outputFault(fmt.Errorf("%s belongs to user %d", place, owner))
	}
	return place, nil
}

// OutputDir creates a directory that the user named, with its missing parents.
func OutputDir(path string, mode fs.FileMode) error {
	place, err := enterDir(path)
	if err == nil {
		err = os.MkdirAll(place, mode)
	}
	if err == nil {
		_, err = enterDir(place) // nobody else was faster
	}
	return outputFault(err)
}

// outputFault says what to do about a place that the user has chosen.
func outputFault(err error) error {
	hint := "name a place in a directory of your own"
	if os.Geteuid() == 0 {
		hint = "name a place in a directory of root's, such as /root"
	}
	return fault.Wrap(err, fault.Usage, hint)
}
