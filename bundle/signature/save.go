package signature

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// writeNew writes a file that must not exist yet. The path never has a part of the
// content.
func writeNew(path string, content []byte, mode fs.FileMode) error {
	return save(path, content, mode, func(temporary string) error {
		// Unlike a rename, a link never replaces a file.
		if err := os.Link(temporary, path); err == nil {
			return os.Remove(temporary)
		}
		// FAT has no links.
		if _, err := os.Lstat(path); err == nil {
			return exists(path)
		}
		return os.Rename(temporary, path)
	})
}

// replace writes a file, or replaces it as a whole.
func replace(path string, content []byte, mode fs.FileMode) error {
	return save(path, content, mode, func(temporary string) error { return os.Rename(temporary, path) })
}

// save writes content to a temporary file next to path, syncs it, and calls place.
func save(path string, content []byte, mode fs.FileMode, place func(temporary string) error) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("writing %s: %w", path, err)
		}
	}()
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*.partial") // mode 0600
	if err != nil {
		return err
	}
	defer func() {
		f.Close()
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	if _, err := f.Write(content); err != nil {
		return err
	}
	_ = f.Chmod(mode) // some file systems of drives have no modes; until here it is 0600
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return place(f.Name())
}
