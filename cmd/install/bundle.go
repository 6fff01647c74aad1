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

// carrier is the bundle file from which the launcher extracted this program,
// nil if this program was started directly. carrierPath is its path, and
// launched is the time since the launcher started. TakeOver must run before this
// process starts a child, which would inherit the file descriptor.
var carrier, carrierPath, launched = head.TakeOver()

// openBundle opens the bundle that contains this program.
func openBundle() (*bundle.File, error) {
	f, err := openCarrier()
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

// openCarrier opens the bundle again on each call. It duplicates the file
// descriptor, because another file, or none, may be at the path by now.
func openCarrier() (*bundle.File, error) {
	if carrier == nil {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("finding the installer's own file: %w", err)
		}
		return bundle.Open(self) // its error reports that this executable has no payload
	}
	fd, err := unix.FcntlInt(carrier.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fault.New(fault.Bundle, "", "opening %s: %w", carrierPath, err)
	}
	return bundle.OpenFile(os.NewFile(uintptr(fd), carrierPath), carrierPath)
}
