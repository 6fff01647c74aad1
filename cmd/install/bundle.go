package main

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"airlift/bundle"
	"airlift/bundle/head"
	"airlift/fault"
)

// ownFile is the bundle file from which the launcher extracted this installer, or
// nil if the installer was started directly. ownPath is its path, and
// launched is the time since the launcher started. TakeOver must run before this
// process starts a child, which would inherit the file descriptor.
var ownFile, ownPath, launched = head.TakeOver()

// openBundle opens the bundle that contains this installer.
func openBundle() (*bundle.File, error) {
	f, err := openOwnFile()
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
		return nil, fault.New(fault.Preflight, "build one with 'bundle build --arch "+runtime.GOARCH+"'",
			"this bundle is for %s, this host is %s", m.Platform, here)
	}
	return f, nil
}

// openOwnFile opens the bundle again on each call. It duplicates the file
// descriptor, because the path may no longer refer to the same file.
func openOwnFile() (*bundle.File, error) {
	if ownFile == nil {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("finding the installer's own file: %w", err)
		}
		return bundle.Open(self) // its error reports that this executable has no payload
	}
	fd, err := unix.FcntlInt(ownFile.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fault.New(fault.Bundle, "", "opening %s: %w", ownPath, err)
	}
	return bundle.OpenFile(os.NewFile(uintptr(fd), ownPath), ownPath)
}
