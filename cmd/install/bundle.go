package main

import (
	"fmt"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"airlift/bundle"
	"airlift/bundle/head"
	"airlift/internal/fault"
)

// An ownBundle is the bundle file that contains this installer.
type ownBundle struct {
	file     *os.File // nil before its first use, if the launcher did not open it
	path     string
	launched time.Duration // since the launcher started, or 0
	unpacked bool          // the launcher unpacked this process from the file
	first    *bundle.File  // as it was opened first
}

var own = takeOver()

// takeOver must run before this process starts a child, which would inherit the file descriptor.
func takeOver() (o ownBundle) {
	o.file, o.path, o.launched = head.TakeOver()
	o.unpacked = o.file != nil
	return o
}

// hold opens the file of this process, if the launcher did not. It does not open it by its path,
// which may name another file by now, or later.
func (o *ownBundle) hold() (err error) {
	if o.file != nil {
		return nil
	}
	if o.path, err = os.Executable(); err == nil {
		o.file, err = os.Open("/proc/self/exe")
	}
	if err != nil {
		return fmt.Errorf("finding the installer's own file: %w", err)
	}
	return nil
}

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
		return nil, fault.New(fault.Preflight, "this bundle is for %s, this host is %s", m.Platform, here).
			Hint("build one with 'bundle build --arch " + runtime.GOARCH + "'")
	}
	return f, nil
}

// openOwnFile opens the bundle again on each call: it duplicates the file descriptor. The content
// must not have changed since the first call, because a signature may have been checked then.
func openOwnFile() (*bundle.File, error) { return own.open() }

func (o *ownBundle) open() (*bundle.File, error) {
	if err := o.hold(); err != nil {
		return nil, err
	}
	fd, err := unix.FcntlInt(o.file.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fault.New(fault.Bundle, "opening %s: %w", o.path, err)
	}
	f, err := bundle.OpenFile(os.NewFile(uintptr(fd), o.path), o.path) // its error reports that an executable has no payload
	if err != nil {
		return nil, err
	}
	if o.first == nil {
		o.first = f
	}
	if !f.SameContent(o.first) {
		f.Close()
		return nil, fault.New(fault.Bundle, "%s was changed while this command was running", o.path).Hint("copy the file to a disk that only root can write to, and run it there")
	}
	return f, nil
}
