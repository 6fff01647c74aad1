package filesystem

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"airlift/internal/atomicfile"
)

// PartialSuffix is added to the name of a Partial until it is complete.
const PartialSuffix = ".partial"

// lockInterval is how often OpenPartial tries again to get a file that another process writes.
const lockInterval = 100 * time.Millisecond

// A Partial is a large file that is written under a temporary name, at any offsets. What a run that was killed has
// written is still there: the next one compares and continues. The caller must call Close.
type Partial struct {
	*os.File
	path string
}

// OpenPartial opens the temporary file of path, or creates it with mode 0600. It waits while another process writes
// the file. The time of the file is then the present, so that nobody takes it for one that was given up.
func OpenPartial(ctx context.Context, path string) (*Partial, error) {
	for {
		file, err := os.OpenFile(path+PartialSuffix, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, err
		}
		p := &Partial{file, path}
		if err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil && p.hasName() {
			if err = Touch(p.Name()); err == nil {
				return p, nil
			}
		}
		file.Close()
		if err != nil && !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("locking %s: %w", file.Name(), err)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(lockInterval):
		}
	}
}

// hasName reports whether the temporary name refers to this file, and not to one that was created later.
func (p *Partial) hasName() bool {
	own, err := p.Stat()
	if err != nil {
		return false
	}
	is, err := os.Lstat(p.Name())
	return err == nil && os.SameFile(is, own)
}

// Clone shares the blocks of another file, if both are on one file system that can do so, and reports whether it did.
func (p *Partial) Clone(from *os.File) bool {
	return unix.IoctlFileClone(int(p.Fd()), int(from.Fd())) == nil
}

// Settle gives the complete file its name, also after a power failure. It replaces a file that has the name.
func (p *Partial) Settle() error {
	if err := p.Sync(); err != nil {
		return err
	}
	if !p.hasName() { // another process may have given the name to its file
		return fmt.Errorf("%s was removed while it was written", p.Name())
	}
	if err := os.Rename(p.Name(), p.path); err != nil {
		return err
	}
	return atomicfile.SyncDir(filepath.Dir(p.path))
}

// Discard removes the file, unless it has its name.
func (p *Partial) Discard() error {
	if !p.hasName() {
		return nil
	}
	return os.Remove(p.Name())
}

// ReopenPartial gives the file at path its temporary name again, so that OpenPartial continues it. It is no error if there
// is none.
func ReopenPartial(path string) error {
	if err := os.Rename(path, path+PartialSuffix); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// Touch makes the present the time of a file's last change.
func Touch(path string) error { return os.Chtimes(path, time.Time{}, time.Now()) }

// RepairPartial opens a complete file, of which damaged bytes are to be replaced.
func RepairPartial(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW, 0)
}

// RemovePartial removes the file at path, complete or not. It is no error if there is none.
func RemovePartial(path string) error {
	for _, name := range []string{path, path + PartialSuffix} {
		if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return atomicfile.SyncDir(filepath.Dir(path))
}
