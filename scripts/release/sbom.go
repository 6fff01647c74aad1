package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"airlift/builder/sbom"
)

// embedded has the programs that the bundle command contains, written by "make executables":
// launcher-linux-amd64.gz.
const embedded = "cmd/bundle/embedded"

// sboms writes an SBOM of all commands of the release in each format.
func (r release) sboms(commands []sbom.Executable) error {
	inner, err := embeddedPrograms(embedded)
	if err != nil {
		return err
	}
	for i := range commands {
		commands[i].Embedded = inner
	}
	contents, err := sbom.Executables(r.version, commands)
	if err != nil {
		return err
	}
	for _, name := range sbom.Formats() {
		format := sbom.Format(name)
		list, err := contents.Encode(format, r.time)
		if err != nil {
			return fmt.Errorf("writing the SBOM as %s: %w", format, err)
		}
		if err := os.WriteFile(format.Path(filepath.Join(r.dir, "bundle_"+r.version)), list, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// embeddedPrograms reads the programs in a directory of .gz files.
func embeddedPrograms(dir string) (programs []sbom.Executable, err error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.gz")) // sorted
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%s has no programs: run make executables", dir)
	}
	for _, path := range names {
		compressed, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		content, err := uncompressed(compressed)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", path, err)
		}
		name, platform, _ := strings.Cut(strings.TrimSuffix(filepath.Base(path), ".gz"), "-")
		programs = append(programs, sbom.Executable{Name: name, Platform: strings.Replace(platform, "-", "/", 1), Content: content})
	}
	return programs, nil
}

func uncompressed(content []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}
