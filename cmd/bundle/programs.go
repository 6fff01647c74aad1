package main

import (
	"bytes"
	"compress/gzip"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"airlift/bundle"
	"airlift/fault"
)

// builtIn holds the programs that bundles begin with, as far as they had been
// built when this program was: see programs/README.md.
//
//go:embed programs
var builtIn embed.FS

// programs returns the launcher and the installer for arch: the files at the
// paths, or those that were built in.
func programs(launcher, installer, arch string) (p bundle.Programs, err error) {
	if p.Launcher, err = program("launcher", launcher, arch); err != nil {
		return bundle.Programs{}, err
	}
	p.Installer, err = program("installer", installer, arch)
	return p, err
}

func program(name, path, arch string) ([]byte, error) {
	if path != "" {
		b, err := os.ReadFile(path)
		return b, fault.Wrap(err, fault.Usage, "--"+name+" takes a program built for linux/"+arch)
	}
	b, err := unpacked("programs/" + name + "-linux-" + arch + ".gz")
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("this program was built without the %s for linux/%s", name, arch)
		return nil, fault.Wrap(err, fault.Failure, "run make, which builds both, or give one with --"+name)
	}
	return b, err
}

// unpacked returns what a built-in .gz file holds.
func unpacked(name string) ([]byte, error) {
	packed, err := builtIn.ReadFile(name)
	if err != nil {
		return nil, err
	}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("unpacking the built-in %s: %w", name, err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		return nil, fmt.Errorf("unpacking the built-in %s: %w", name, err)
	}
	return b, nil
}
