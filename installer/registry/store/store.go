// Package store keeps bundle files in a directory of a control plane, each under its ID. A reader gets only bytes that
// match the digests of the bundle.
package store

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"airlift/bundle"
	"airlift/installer/host/filesystem"
	"airlift/internal/fault"
)

// A Store is a directory with kept files. Several goroutines and processes may use it.
type Store struct {
	dir string
	// buffers are for pieces that are compared. They limit the memory for that.
	buffers chan []byte
}

// comparing is how many pieces are compared at once.
const comparing = 4

// New returns the store in a directory, which must exist when it is used.
func New(dir string) *Store {
	s := &Store{dir: dir, buffers: make(chan []byte, comparing)}
	for range comparing {
		s.buffers <- nil
	}
	return s
}

// IsID reports whether text has the form of an ID.
func IsID(text string) bool {
	return len(text) == 2*sha256.Size && strings.Trim(text, "0123456789abcdef") == ""
}

func (s *Store) path(id string) string { return filepath.Join(s.dir, id) }

// An Item is a file in the store.
type Item struct {
	ID string
	// Placed is when Keep placed the file last, or when the last byte of an incomplete one was written.
	Placed   time.Time
	Complete bool
}

// List returns the files in the store, by ID. It opens none of them.
func (s *Store) List() (items []Item, err error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("listing the kept bundles: %w", err)
	}
	for _, e := range entries {
		id, partial := strings.CutSuffix(e.Name(), filesystem.PartialSuffix)
		if !IsID(id) || !e.Type().IsRegular() {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) { // removed meanwhile
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("listing the kept bundles: %w", err)
		}
		items = append(items, Item{ID: id, Placed: info.ModTime(), Complete: !partial})
	}
	return items, nil
}

// Remove removes a file, complete or not. A process that has it open can still read it. It is no error if there is none.
func (s *Store) Remove(id string) error {
	if err := filesystem.RemovePartial(s.path(id)); err != nil {
		return fmt.Errorf("removing the kept bundle %s: %w", id, err)
	}
	return nil
}

// A Kept is an open file of the store. All that is read of it, also through the File, is compared with the digests
// first. Several goroutines may use it.
type Kept struct {
	File    *bundle.File
	ID      string
	content *content
	info    fs.FileInfo
}

// Open opens a complete file. damaged is called for each section that cannot be read or does not match its digest,
// perhaps by several goroutines; what is read of it then fails. A file that is none of this ID is an error.
func (s *Store) Open(id string, damaged func(error)) (*Kept, error) {
	file, err := os.OpenFile(s.path(id), os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("opening the kept bundle %s: %w", id, err)
	}
	k, err := s.open(file, id, damaged)
	if err != nil {
		file.Close()
		return nil, err
	}
	return k, nil
}

func (s *Store) open(file *os.File, id string, damaged func(error)) (*Kept, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	c := &content{file: file, buffers: s.buffers, damaged: damaged}
	f, err := bundle.OpenAt(c, info.Size(), s.path(id))
	if err != nil {
		return nil, err
	}
	if is := f.ID(); is != id || int64(f.Trailer().FileSize()) != info.Size() {
		return nil, fault.New(fault.Bundle, "%s has the bundle %s, of %d bytes", s.path(id), is, f.Trailer().FileSize())
	}
	c.compare(f)
	return &Kept{File: f, ID: id, content: c, info: info}, nil
}

// ReadAt reads the file by its offsets.
func (k *Kept) ReadAt(b []byte, at int64) (int, error) { return k.content.ReadAt(b, at) }

// Current reports whether the file in the store is still the open one.
func (s *Store) Current(k *Kept) bool {
	info, err := os.Lstat(s.path(k.ID))
	return err == nil && os.SameFile(info, k.info)
}

// Close closes the file. What is read then fails.
func (k *Kept) Close() error { return k.content.file.Close() }
