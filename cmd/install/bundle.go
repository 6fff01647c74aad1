package main

import (
	"errors"
	"fmt"
	"os"
	"path"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"airlift/bundle"
	"airlift/bundle/head"
	"airlift/installer/host"
	"airlift/installer/host/filesystem"
	"airlift/installer/host/ledger"
	"airlift/installer/registry"
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
		if errors.Is(err, bundle.ErrNoPayload) && o.path == host.CommandPath {
			if err := o.find(); err != nil {
				return nil, err
			}
			return o.open()
		}
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

// used returns the path and the ID of the file with a payload that this process has opened, if there is one.
func (o *ownBundle) used() (path, id string) {
	if o.first == nil {
		return "", ""
	}
	return o.path, o.first.ID()
}

// find makes the file with a payload that was used last on this host the file of the command airlift: it has the same digests, and
// the same installer. It is still where it was, or the registry of this control plane keeps it.
func (o *ownBundle) find() error {
	noPayload := fault.New(fault.Bundle, "%s is the installer %w", host.CommandPath, bundle.ErrNoPayload)
	h, err := host.Open("/")
	if err != nil {
		return noPayload.Hint("run it as root, or run the file with the binaries and images instead")
	}
	last := lastFile(h)
	for _, path := range []string{last.File, path.Join(registry.Directory, last.Bundle)} {
		f, err := bundle.Open(path)
		if err != nil {
			continue
		}
		if isOf(h, f, last) {
			o.path, o.first = path, f // what is opened from now on must be the same
			o.file, err = os.Open(path)
			return err
		}
		_ = f.Close()
	}
	return noPayload.Hint(whichFile(h, last))
}

// isOf reports whether a file is the one of a run, with the installer that is the command airlift of a host.
func isOf(h *host.Host, f *bundle.File, r ledger.Run) bool {
	command, _ := h.Records().Find(ledger.Binary, host.CommandPath)
	return f.ID() == r.Bundle && f.Installer().SHA256 == command.SHA256
}

// lastFile returns the last run on a host that used a file with a payload.
func lastFile(h *host.Host) (last ledger.Run) {
	runs, _ := h.Records().Runs() // without the list, the hint is shorter
	for _, r := range runs {
		if r.File != "" {
			last = r
		}
	}
	return last
}

// whichFile names a file with a payload for a host, on which last used one.
func whichFile(h *host.Host, last ledger.Run) string {
	switch {
	case last.File == "":
		return "copy the file with the binaries and images to this host, and run it instead"
	case filesystem.Exists(h.Path(last.File)):
		return "run a file of Kubernetes " + last.Version + " instead, for example " + last.File
	}
	return "copy the file of Kubernetes " + last.Version + " to this host, and run it instead; it was " + last.File
}
