package fetch

import (
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/windows"
)

// createTemp creates a file with a new name in dir.
func createTemp(dir string) (*os.File, error) {
	return open(filepath.Join(dir, "new."+rand.Text()), windows.CREATE_NEW)
}

// openFile opens a file for reading and writing, and creates it if it does not exist.
func openFile(name string) (*os.File, error) { return open(name, windows.OPEN_ALWAYS) }

// open opens a file that can be renamed and removed while it is open, unlike os.OpenFile.
func open(name string, disposition uint32) (*os.File, error) {
	fail := func(err error) (*os.File, error) {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	path, err := windows.UTF16PtrFromString(name)
	if err != nil {
		return fail(err)
	}
	h, err := windows.CreateFile(path, windows.GENERIC_READ|windows.GENERIC_WRITE|windows.DELETE,
		windows.FILE_SHARE_READ|windows.FILE_SHARE_WRITE|windows.FILE_SHARE_DELETE, nil,
		disposition, windows.FILE_ATTRIBUTE_NORMAL, 0)
	if err != nil {
		return fail(err)
	}
	return os.NewFile(uintptr(h), name), nil
}

// tryLock locks an open file until it is closed, and reports whether it could. It returns
// false and no error if another process holds the lock.
//
// A lock of Windows also stops others from reading and writing the locked bytes, so this
// one is on a byte that no download reaches: 2^62.
func tryLock(f *os.File) (bool, error) {
	at := windows.Overlapped{OffsetHigh: 1 << 30}
	err := windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &at)
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return false, nil
	}
	return err == nil, err
}
