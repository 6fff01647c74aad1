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
	"airlift/internal/fault"
)

// embedded holds the launcher and the installer, if they were built before this command:
// see embedded/README.md.
//
//go:embed embedded
var embedded embed.FS

// executables returns the launcher and the installer for arch, from the given paths or from
// embedded.
func executables(launcher, installer, arch string) (p bundle.Executables, err error) {
	if p.Launcher, err = executable("launcher", launcher, arch); err != nil {
		return bundle.Executables{}, err
	}
	p.Installer, err = executable("installer", installer, arch)
	return p, err
}

func executable(name, path, arch string) ([]byte, error) {
	if path != "" {
		b, err := os.ReadFile(path)
		return b, fault.Wrap(err, fault.Usage, "use --"+name+" with a binary built for linux/"+arch)
	}
	packed, err := embedded.ReadFile("embedded/" + name + "-linux-" + arch + ".gz")
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("this bundle command was built without the %s for linux/%s", name, arch)
		return nil, fault.Wrap(err, fault.Failure, "build the bundle command with make, or give the "+name+" with --"+name)
	}
	var b []byte
	if err == nil {
		var z *gzip.Reader
		if z, err = gzip.NewReader(bytes.NewReader(packed)); err == nil {
			b, err = io.ReadAll(z)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("unpacking the built-in %s for linux/%s: %w", name, arch, err)
	}
	return b, nil
}
