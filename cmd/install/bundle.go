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

// carrier is the bundle file that the launcher took this program from and
// carrierPath what it is called; nil where this program was started by itself.
// launched is for how long the launcher has been at work before. They are taken
// at once, before anything is started that would inherit them.
var carrier, carrierPath, launched = head.TakeOver()

// openBundle opens the bundle that this program came in.
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
		return nil, fault.New(fault.Bundle, "build one with 'bundle build --arch "+runtime.GOARCH+"'",
			"this bundle is for %s, this host is %s", m.Platform, here)
	}
	return f, nil
}

// openCarrier opens the file anew each time. It goes by the descriptor, as
// another file may stand at the path by now, or none.
func openCarrier() (*bundle.File, error) {
	if carrier == nil {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("finding this program's own file: %w", err)
		}
		return bundle.Open(self) // says what this program lacks
	}
	fd, err := unix.FcntlInt(carrier.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fault.New(fault.Bundle, "", "opening %s: %w", carrierPath, err)
	}
	return bundle.OpenFile(os.NewFile(uintptr(fd), carrierPath), carrierPath)
}
