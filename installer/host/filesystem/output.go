package filesystem

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"airlift/bundle"
	"airlift/internal/atomicfile"
	"airlift/internal/fault"
)

// Outputs are files that the user names, anywhere. Reset does not remove them.

// WriteOutput atomically writes a file that the user named. If the path is a
// symbolic link of the user or of root, it replaces the link's target.
func WriteOutput(path string, data []byte, mode fs.FileMode) error {
	place, err := outputPlace(path)
	if err != nil {
		return err
	}
	return Replace(place, data, mode)
}

// An Output is a file that the user named, while it is written under a temporary name in the
// same directory. The caller must call Commit or Discard.
type Output struct{ file *Staged }

// CreateOutput begins a file that the user named, with mode 0600.
func CreateOutput(path string) (*Output, error) {
	place, err := outputPlace(path)
	if err != nil {
		return nil, err
	}
	f, err := stageBytes(place, nil, 0o600)
	if failed := (*fs.PathError)(nil); errors.As(err, &failed) {
		return nil, failed.Err // without the path of the temporary file
	}
	if err != nil {
		return nil, err
	}
	return &Output{f}, nil
}

// Name returns the temporary name, for reading what was written.
func (o *Output) Name() string { return o.file.Name() }

// Size returns the number of bytes that were written.
func (o *Output) Size() (int64, error) {
	info, err := o.file.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (o *Output) Write(p []byte) (int, error) { return o.file.Write(p) }

// Commit writes the content to the disk and gives the file its name. It replaces a file that
// has the name.
func (o *Output) Commit() error { return o.file.Settle() }

// CommitNew is Commit for a name that no file has. If one has it, the error is fs.ErrExist.
func (o *Output) CommitNew() error { return o.file.settleWith(atomicfile.RenameNew) }

// Discard removes the file, unless it has its name.
func (o *Output) Discard() { o.file.discard() }

// Exposed reports whether other users of this machine can read a file that was written for its owner only:
// file systems such as FAT have no modes.
func Exposed(path string) (bool, error) {
	info, err := os.Stat(path)
	return err == nil && info.Mode().Perm()&0o077 != 0, err
}

// UnfinishedOutput returns the final name of the file that a killed run was writing, if name is a
// temporary file's name.
func UnfinishedOutput(name string) (final string, ok bool) {
	return strings.CutPrefix(name, tempPrefix)
}

// RemoveOutput removes a file that WriteOutput or an Output wrote.
func RemoveOutput(path string) error {
	place, err := outputPlace(path)
	if err != nil {
		return err
	}
	return os.Remove(place)
}

// CheckOutput checks whether WriteOutput could write a file, and leaves nothing
// behind.
func CheckOutput(path string) error {
	place, err := outputPlace(path)
	if err != nil {
		return err
	}
	f, err := stageBytes(place, nil, 0o600)
	if failed := (*fs.PathError)(nil); errors.As(err, &failed) {
		return failed.Err // without the path of the temporary file
	}
	if err == nil {
		f.discard()
	}
	return err
}

// outputPlace resolves the path of an output. It refuses devices and pipes, which
// a file would replace, and in a world-writable directory such as /tmp the files
// of other users.
func outputPlace(path string) (string, error) {
	place, info, err := Resolve(path)
	switch {
	case err != nil || info == nil:
		return place, OutputFault(err)
	case !info.Mode().IsRegular():
		return "", OutputFault(ErrNotRegular)
	}
	dir, err := os.Lstat(filepath.Dir(place))
	if err != nil {
		return "", err
	}
	if owner, trusted := ownerOf(info); !trusted && worldWritable(dir) {
		return "", OutputFault(fmt.Errorf("%s belongs to user %d", place, owner))
	}
	return place, bundle.KeepBundle(place)
}

// OutputDir creates a directory that the user named, with its missing parents.
func OutputDir(path string, mode fs.FileMode) error {
	place, err := enterDir(path)
	if err == nil {
		err = os.MkdirAll(place, mode)
	}
	if err == nil {
		_, err = enterDir(place) // nobody replaced it meanwhile
	}
	return OutputFault(err)
}

// OutputFault adds a hint to an error about a path that the user chose.
func OutputFault(err error) error {
	hint := "choose a path in a directory that you own"
	if os.Geteuid() == 0 {
		hint = "choose a path in a directory that root owns, such as /root"
	}
	return fault.Wrap(err, fault.Usage, hint)
}
