// Package host is the only code that changes this machine: files, systemd,
// kernel parameters, routes, mounts, and iptables and nftables rules.
//
// It records everything that it installs or creates in a ledger first, so that
// `install reset` can remove exactly that, also after a crash: the ledger never
// lists less than what is on the host.
package host

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
)

// Host is one machine, or a directory that represents its root file system.
// Its methods may be called from several goroutines.
type Host struct {
	root string
	// outputOnly is set if root is a directory for rendered files, without a
	// ledger.
	outputOnly bool
	locked     bool // by OpenLocked
	// Warn, if not nil, receives a warning about each file of the user that a
	// write replaces.
	Warn func(format string, args ...any)

	mu      sync.Mutex // guards the fields below and the order of ledger writes
	ledger  ledger
	unsaved bool       // ledger has changes that are not on disk
	run     *RunRecord // the command that changes this host; nil if it is not recorded
}

// Open returns the host whose root file system is at root ("/" for this
// machine), with its ledger, for reading only: another installer may be changing
// it. Use OpenLocked to change the host.
func Open(root string) (*Host, error) {
	h := &Host{root: root}
	if err := h.Records().readLedger(); err != nil {
		return nil, err
	}
	return h, nil
}

// OpenDamaged returns the host whose root file system is at root without its
// ledger, for reading only: to look at a host whose ledger is damaged.
func OpenDamaged(root string) *Host { return &Host{root: root} }

// OpenDirectory creates a directory that represents a host's root file system,
// for rendered files: nothing is recorded for reset.
func OpenDirectory(root string) (*Host, error) {
	if err := OutputDir(root, 0o755); err != nil {
		return nil, err
	}
	return &Host{root: root, outputOnly: true}, nil
}

// NewDirectory creates a new directory in parent that represents a host's root
// file system, as OpenDirectory does. Its name begins with prefix.
func NewDirectory(parent, prefix string) (*Host, error) {
	if err := OutputDir(parent, 0o700); err != nil {
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
		return fmt.Errorf("removing %s: it is the root directory of a host", h.root)
	}
	return os.RemoveAll(h.root)
}

// Path returns the path in this process for a path of the host.
func (h *Host) Path(p string) string { return filepath.Join(h.root, p) }
