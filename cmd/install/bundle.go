package main

import (
	"fmt"
	"os"
	"runtime"

	"airlift/bundle"
	"airlift/fault"
)

// openBundle opens the bundle that this program is the head of.
func openBundle() (*bundle.File, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program's own file: %w", err)
	}
	f, err := bundle.Open(self)
	if err != nil {
		return nil, err
	}
	m, err := f.Manifest()
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	if here := runtime.GOOS + "/" + runtime.GOARCH; m.Platform != here {
		_ = f.Close()
		return nil, fault.New(fault.Bundle, "build one with 'bundle build --arch "+runtime.GOARCH+"'",
			"this bundle is for %s, this host is %s", m.Platform, here)
	}
	return f, nil
}
