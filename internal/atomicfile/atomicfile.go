// Package atomicfile writes files that are complete as soon as they have their names. A crash
// or an error leaves the earlier file, or none.
package atomicfile

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// A File is written under a temporary name in the directory of its path.
type File struct {
	*os.File
	path    string
	held    io.Closer // keeps other processes from removing the temporary file
	renamed bool
}

const suffix = ".partial"

// Create creates a temporary file for path, with mode 0600: ".NAME.NUMBER.partial". It removes such
// files of processes that were killed. The caller must call Discard.
func Create(path string) (*File, error) {
	removeLeft(path)
	for {
		f, err := os.CreateTemp(filepath.Dir(path), prefix(path)+"*"+suffix)
		if err != nil {
			return nil, err
		}
		if held, ok := hold(f); ok {
			return &File{File: f, path: path, held: held}, nil
		}
		f.Close() // another process has just removed it
	}
}

func prefix(path string) string { return "." + filepath.Base(path) + "." }

var number = regexp.MustCompile(`^[0-9]+$`)

// removeLeft removes the temporary files for path that no process holds. An error is not important:
// the files are only in the way.
func removeLeft(path string) {
	dir := filepath.Dir(path)
	list, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range list {
		rest, begins := strings.CutPrefix(e.Name(), prefix(path))
		rest, ends := strings.CutSuffix(rest, suffix)
		if begins && ends && number.MatchString(rest) && e.Type().IsRegular() {
			removeUnheld(filepath.Join(dir, e.Name()))
		}
	}
}

// Finish sets the mode, syncs the content and closes the file, which keeps its temporary name.
// File systems without modes, such as FAT, are not an error.
func (f *File) Finish(mode fs.FileMode) error {
	_ = f.Chmod(mode)
	return errors.Join(f.Sync(), f.Close())
}

// Replace gives the finished file its name, also after a power failure. It replaces a file that has
// the name.
func (f *File) Replace() error { return f.place(os.Rename) }

// PlaceNew is Replace for a name that no file has. If one has it, the error is fs.ErrExist.
func (f *File) PlaceNew() error { return f.place(RenameNew) }

func (f *File) place(rename func(from, to string) error) error {
	if err := rename(f.Name(), f.path); err != nil {
		return err
	}
	f.renamed = true
	f.held.Close()
	return SyncDir(filepath.Dir(f.path))
}

// RenameNew renames a file. An existing file is not replaced; the error is then fs.ErrExist.
func RenameNew(from, to string) error {
	// Unlike a rename, a link never replaces a file.
	err := os.Link(from, to)
	if err == nil {
		return os.Remove(from)
	}
	if errors.Is(err, fs.ErrExist) {
		return err
	}
	// FAT has no links.
	if _, err := os.Lstat(to); err == nil {
		return &fs.PathError{Op: "create", Path: to, Err: fs.ErrExist}
	}
	return os.Rename(from, to)
}

// Discard closes the file and removes it, unless it has its name. A deferred call does no harm.
func (f *File) Discard() {
	if !f.renamed {
		f.Remove()
	}
}

// Remove closes the file and removes it under the name that it has.
func (f *File) Remove() {
	f.Close()
	name := f.Name()
	if f.renamed {
		name = f.path
	}
	os.Remove(name)
	f.held.Close()
}

// Write replaces the file at path.
func Write(path string, content []byte, mode fs.FileMode) error {
	return write(path, content, mode, (*File).Replace)
}

// WriteNew writes a file that must not exist; if it does, the error is fs.ErrExist.
func WriteNew(path string, content []byte, mode fs.FileMode) error {
	return write(path, content, mode, (*File).PlaceNew)
}

func write(path string, content []byte, mode fs.FileMode, place func(*File) error) error {
	f, err := Create(path)
	if err != nil {
		return err
	}
	defer f.Discard()
	if _, err := f.Write(content); err != nil {
		return err
	}
	if err := f.Finish(mode); err != nil {
		return err
	}
	return place(f)
}
