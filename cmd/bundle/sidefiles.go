package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"airlift/builder"
	"airlift/bundle"
)

// removeOfReplaced removes the side files of the replaced bundle, next to the new bundle at path,
// and prints their names. Side files of the new bundle, which were copied there before, stay.
func removeOfReplaced(out io.Writer, path string, s bundle.Summary) error {
	f, err := bundle.OpenWhole(path)
	if err != nil {
		return err
	}
	defer f.Close()
	m, err := f.Manifest()
	if err != nil {
		return err
	}
	for _, file := range builder.SideFiles(path) {
		content, err := os.ReadFile(file.Path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("the new bundle is complete, but a file of the replaced bundle may be next to it: %w", err)
		}
		of, known := file.Of(content, m, s)
		switch {
		case !known:
			fmt.Fprintf(out, "%s was kept: remove it if it is of the replaced bundle\n", file.Path)
		case !of:
			if err := os.Remove(file.Path); err != nil {
				return fmt.Errorf("the new bundle is complete, but a file of the replaced bundle is next to it: %w", err)
			}
			fmt.Fprintf(out, "%s was removed: it was of the replaced bundle\n", file.Path)
		}
	}
	return nil
}
