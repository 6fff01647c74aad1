package main

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"airlift/bundle"
	"airlift/bundle/builder"
	"airlift/bundle/builder/sbom"
	"airlift/bundle/signature"
)

// A sideFile is a file next to a bundle. of reports whether it is of the bundle; known is false if
// its content does not show that.
type sideFile struct {
	path string
	of   func(content []byte) (of, known bool)
}

// sideFiles lists the files that may be next to the bundle at path, whose sha256 is sum.
func sideFiles(path string, m *bundle.Manifest, size int64, sum string) []sideFile {
	list := []sideFile{
		{signature.Path(path), func(content []byte) (of, known bool) {
			return signature.Describes(content, m.KubernetesVersion, size)
		}},
		{builder.ProvenancePath(path), func(content []byte) (of, known bool) {
			var p builder.Provenance
			err := json.Unmarshal(content, &p)
			return p.BundleSHA256 == sum, err == nil && p.BundleSHA256 != ""
		}},
	}
	for _, name := range sbom.Formats() {
		list = append(list, sideFile{sbom.Format(name).Path(path), func(content []byte) (of, known bool) {
			entry, known := m.SBOM(name)
			e, _ := m.Entry(entry)
			return fmt.Sprintf("%x", sha256.Sum256(content)) == e.SHA256, known
		}})
	}
	return list
}

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
	for _, file := range sideFiles(path, m, s.Size, s.SHA256) {
		content, err := os.ReadFile(file.path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("the new bundle is complete, but a file of the replaced bundle may be next to it: %w", err)
		}
		of, known := file.of(content)
		switch {
		case !known:
			fmt.Fprintf(out, "%s was kept: remove it if it is of the replaced bundle\n", file.path)
		case !of:
			if err := os.Remove(file.path); err != nil {
				return fmt.Errorf("the new bundle is complete, but a file of the replaced bundle is next to it: %w", err)
			}
			fmt.Fprintf(out, "%s was removed: it was of the replaced bundle\n", file.path)
		}
	}
	return nil
}
