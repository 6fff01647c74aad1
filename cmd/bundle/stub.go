package main

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"airlift/fault"
)

// stubs holds the install programs that bundles begin with, as far as they
// had been built when this program was: see stubs/README.md.
//
//go:embed stubs
var stubs embed.FS

// installer returns the install program for arch: the file at path, or the
// one that was built in.
func installer(path, arch string) ([]byte, error) {
	if path != "" {
		b, err := os.ReadFile(path)
		return b, fault.Wrap(err, fault.Usage, "--installer takes an install program built for linux/"+arch)
	}
	b, err := stubs.ReadFile("stubs/install-linux-" + arch)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("this program was built without the install program for linux/%s", arch)
		return nil, fault.Wrap(err, fault.Failure, "run make, which builds both, or give one with --installer")
	}
	return b, err
}
