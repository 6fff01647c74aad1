// Package host changes this machine; only it and the packages below it do. It records everything
// that it installs or creates in the ledger first, so that `install reset` can remove exactly that, also
// after a crash.
package host

import (
	"context"
	"fmt"
	"os"

	"airlift/installer/host/filesystem"
	"airlift/installer/host/ledger"
	"airlift/installer/host/systemd"
)

// Host is one machine, or a directory that represents its root file system.
// Its methods may be called from several goroutines.
type Host struct {
	filesystem.Root
	records *ledger.Records
	// outputOnly is set if Root is a directory for rendered files, without a
	// ledger.
	outputOnly bool
	locked     bool // by OpenLocked
	// Warn, if not nil, receives a warning about each file of the user that a
	// write replaces.
	Warn func(format string, args ...any)
	// ConnectSystemd, if not nil, connects to the systemd of a host that is a directory.
	ConnectSystemd func(context.Context) (systemd.Conn, error)
	// Installer, if not "", is the file of the running installer, which otherwise is this process's.
	Installer string
	guard     ledger.Guard
	// Units are the files of units that this process has changed.
	Units systemd.Written
}

// GuardChanges makes guard call do for each change of the host, or prevent the change with an error.
func (h *Host) GuardChanges(guard ledger.Guard) { h.guard, h.records.Guard = guard, guard }

// Change calls do, which changes the file at a path, unless the guard prevents it. systemd reads the file of a unit again before the unit
// is started.
func (h *Host) Change(path string, do func() error) error {
	defer h.Units.Add(path)
	return h.guard.Change(path, do)
}

// Open returns the host whose root file system is at root ("/" for this
// machine), with its ledger, for reading only: another installer may be changing
// it. Use OpenLocked to change the host.
func Open(root string) (*Host, error) {
	records, err := ledger.Read(filesystem.Root(root))
	if err != nil {
		return nil, err
	}
	return &Host{Root: filesystem.Root(root), records: records}, nil
}

// OpenDamaged returns the host whose root file system is at root without its
// ledger, for reading only: to look at a host whose ledger is damaged.
func OpenDamaged(root string) *Host {
	return &Host{Root: filesystem.Root(root), records: ledger.Unread(filesystem.Root(root))}
}

// OpenDirectory creates a directory that represents a host's root file system,
// for rendered files: nothing is recorded for reset.
func OpenDirectory(root string) (*Host, error) {
	if err := filesystem.OutputDir(root, 0o755); err != nil {
		return nil, err
	}
	return &Host{Root: filesystem.Root(root), records: ledger.InMemory(filesystem.Root(root)), outputOnly: true}, nil
}

// NewDirectory creates a new directory in parent that represents a host's root
// file system, as OpenDirectory does. Its name begins with prefix.
func NewDirectory(parent, prefix string) (*Host, error) {
	if err := filesystem.OutputDir(parent, 0o700); err != nil {
		return nil, err
	}
	root, err := os.MkdirTemp(parent, prefix)
	if err != nil {
		return nil, err
	}
	return OpenDirectory(root)
}

// RemoveDirectory removes the directory of OpenDirectory or NewDirectory with
// everything in it.
func (h *Host) RemoveDirectory() error {
	if !h.outputOnly {
		return fmt.Errorf("removing %s: it is the root directory of a host", h.Root)
	}
	return os.RemoveAll(string(h.Root))
}

// Records returns the ledger's entries: what Airlift wrote, claimed and owns on the host.
func (h *Host) Records() *ledger.Records { return h.records }

// Systemd are the units of systemd on the host. A unit that is enabled is recorded.
func (h *Host) Systemd() systemd.Manager {
	return systemd.New(h.Root, h.ConnectSystemd, func(unit string) error { return h.records.Record(ledger.Entry{Kind: ledger.Unit, Name: unit}) }, &h.Units)
}

// makeState creates StateDir.
func (h *Host) makeState() error { return h.MakeDir(ledger.StateDir, 0o700) }
