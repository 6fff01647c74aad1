package filesystem

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"airlift/bundle"
	"airlift/internal/atomicfile"
	"airlift/internal/fault"
	"airlift/internal/interrupt"
)

// Replace atomically replaces the file at path.
func Replace(path string, data []byte, mode fs.FileMode) error {
	f, err := stageBytes(path, data, mode)
	if err != nil {
		return err
	}
	return f.Settle()
}

// ReplaceFor atomically replaces the file at path by one of another user.
func ReplaceFor(path string, data []byte, mode fs.FileMode, uid, gid int) error {
	f, err := stageBytes(path, data, mode)
	if err != nil {
		return err
	}
	if err := f.Chown(uid, gid); err != nil {
		f.discard()
		return err
	}
	return f.Settle()
}

// stageBytes is Stage for bytes in memory.
func stageBytes(path string, data []byte, mode fs.FileMode) (*Staged, error) {
	return Stage(context.Background(), path, bytes.NewReader(data), mode, "")
}

// TempName is the name of the temporary file that becomes path once it is
// complete. Because of the dot, the kubelet and systemd ignore it in directories
// that they watch. The name is fixed, so that the next run after a crash
// overwrites it, and reset finds it.
func TempName(path string) string {
	return filepath.Join(filepath.Dir(path), tempPrefix+filepath.Base(path))
}

const tempPrefix = ".airlift-"

// A Staged is the temporary file that is to replace the one at path.
type Staged struct {
	*os.File
	path string
	info fs.FileInfo
}

// Stage writes r to a temporary file next to path and compares it with the
// sha256 in hexadecimal, unless that is empty.
func Stage(ctx context.Context, path string, r io.Reader, mode fs.FileMode, want string) (_ *Staged, err error) {
	// Remove the leftover of a crashed run.
	if err := os.Remove(TempName(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	file, err := os.OpenFile(TempName(path), os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	f := &Staged{File: file, path: path}
	defer func() {
		if err != nil {
			f.discard()
		}
	}()
	if f.info, err = f.Stat(); err != nil {
		return nil, err
	}
	sum := sha256.New()
	v, verified := r.(bundle.Content)
	verified = want == "" || verified && v.Verifies() == want
	if !verified {
		r = io.TeeReader(r, sum)
	}
	if _, err = io.CopyBuffer(struct{ io.Writer }{f}, interrupt.Reader(ctx, r), make([]byte, 64<<10)); err != nil {
		return nil, err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); !verified && got != want {
		return nil, fault.New(fault.Bundle, "its sha256 is %s, want %s", got, want).Hint("copy the bundle file again")
	}
	// Not every file system has modes.
	if err = f.Chmod(mode); errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.ENOTSUP) {
		err = nil
	}
	return f, err
}

func (f *Staged) discard() {
	f.Close()
	if f.ownsName() {
		os.Remove(f.Name())
	}
}

// ownsName reports whether the temporary name still refers to this file: another host may write to
// the same directory.
func (f *Staged) ownsName() bool {
	is, err := os.Lstat(f.Name())
	return err == nil && os.SameFile(is, f.info)
}

// Settle syncs the file, renames it, and syncs the directory.
func (f *Staged) Settle() error { return f.settleWith(os.Rename) }

func (f *Staged) settleWith(rename func(from, to string) error) (err error) {
	defer func() {
		if err != nil {
			f.discard()
		}
	}()
	if err = f.Sync(); err != nil {
		return err
	}
	if !f.ownsName() {
		return fmt.Errorf("another process replaced %s", f.Name())
	}
	if err = f.Close(); err != nil {
		return err
	}
	if err = rename(f.Name(), f.path); err != nil {
		return err
	}
	return atomicfile.SyncDir(filepath.Dir(f.path))
}

// ReplaceLink atomically replaces path by a symbolic link.
func ReplaceLink(path, target string) error {
	next := TempName(path)
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(target, next); err != nil {
		return err
	}
	if err := os.Rename(next, path); err != nil {
		return err
	}
	return atomicfile.SyncDir(filepath.Dir(path))
}
