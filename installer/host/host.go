// Package host is the only code that changes this machine: files, systemd,
// kernel settings, routes, mounts and packet filter rules.
//
// What it installs or creates is written to a ledger first, so that
// `install reset` can take away exactly that, also after a crash: the ledger
// never holds less than what is on the host.
package host

import (
	"path/filepath"
	"sync"
)

// Host is one machine, or a folder that stands for its root file system.
// Its methods may be called from several goroutines.
type Host struct {
	root string
	// folder says that root only holds files for somebody to look at or take
	// away: no ledger is kept there.
	folder bool

	mu      sync.Mutex // guards what follows and the order of the ledger's writes
	ledger  ledger
	unsaved bool // ledger knows more than the one on disk
}

// Open returns the host whose root file system is at root ("/" for this
// machine) and reads its ledger, to look at the host: another installer may be
// at work on it. To change the host, use OpenLocked. Open changes nothing.
func Open(root string) (*Host, error) {
	h := &Host{root: root}
	if err := h.readLedger(); err != nil {
		return nil, err
	}
	return h, nil
}

// OpenFolder returns a folder that stands for a host's root file system, to
// write files into: nothing is recorded for a reset. The folder is made.
func OpenFolder(root string) (*Host, error) {
	if err := OutputDir(root, 0o755); err != nil {
		return nil, err
	}
	return &Host{root: root, folder: true}, nil
}

// Path returns where a path of the host is found by this process.
func (h *Host) Path(p string) string { return filepath.Join(h.root, p) }
