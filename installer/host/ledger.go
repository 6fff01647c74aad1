package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"airlift/fault"
)

// Where the host's own bookkeeping lives.
const (
	StateDir     = "/var/lib/airlift"
	LedgerPath   = StateDir + "/ledger.json"
	originalsDir = StateDir + "/originals"
)

// What an entry of the ledger is about.
const (
	kindFile    = "file"    // a text file that we wrote
	kindBinary  = "binary"  // a program that we installed
	kindDir     = "dir"     // a folder that we made; goes when it is empty
	kindUnit    = "unit"    // a systemd unit that we enabled
	kindRoute   = "route"   // a route that we added
	kindRuntime = "runtime" // the container runtime is ours
	kindSysctl  = "sysctl"  // a kernel setting that we changed; it stays as it is
	kindModule  = "module"  // a kernel module that we loaded; it stays
)

// ledgerVersion changes when an older installer could not read the file.
const ledgerVersion = 1

type ledger struct {
	Version int     `json:"version"`
	Entries []entry `json:"entries"`
}

// An entry is one thing on the host that would not be there without us.
type entry struct {
	Kind string `json:"kind"`
	Name string `json:"name"` // a path, a unit's name or a CIDR
	// SHA256 of the content that we wrote. Before is the one it replaced: a
	// crash between the ledger's write and the file's leaves that.
	SHA256 string `json:"sha256,omitempty"`
	Before string `json:"before,omitempty"`
	// Original is where somebody else's file of that name was kept.
	Original string `json:"original,omitempty"`
	Device   string `json:"device,omitempty"`
	// Holds says for people what programs put there.
	Holds string `json:"holds,omitempty"`
}

// wrote says whether content with the given digest is ours.
func (e entry) wrote(sha256 string) bool { return sha256 == e.SHA256 || sha256 == e.Before }

func (h *Host) readLedger() error {
	data, err := os.ReadFile(h.Path(LedgerPath))
	if errors.Is(err, fs.ErrNotExist) {
		h.ledger = ledger{Version: ledgerVersion}
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the ledger of what was installed: %w", err)
	}
	if err := json.Unmarshal(data, &h.ledger); err != nil {
		return fault.New(fault.Failure, "it lists what was installed here; move it away to go on without it",
			"reading %s: %w", LedgerPath, err)
	}
	if h.ledger.Version > ledgerVersion {
		return fault.New(fault.Failure, "use the installer that wrote it, or a newer one",
			"reading %s: its version is %d, this installer knows %d", LedgerPath, h.ledger.Version, ledgerVersion)
	}
	return nil
}

// Used says whether something was installed on this host by us.
func (h *Host) Used() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.ledger.Entries) > 0
}

// find returns the entry for a kind and name. The caller holds h.mu.
func (h *Host) find(kind, name string) (entry, bool) {
	for _, e := range h.ledger.Entries {
		if e.Kind == kind && e.Name == name {
			return e, true
		}
	}
	return entry{}, false
}

// recorded is find for callers without the lock.
func (h *Host) recorded(kind, name string) (entry, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.find(kind, name)
}

// entries returns the entries of a kind, oldest first.
func (h *Host) entries(kind string) []entry {
	h.mu.Lock()
	defer h.mu.Unlock()
	var found []entry
	for _, e := range h.ledger.Entries {
		if e.Kind == kind {
			found = append(found, e)
		}
	}
	return found
}

// record puts e into the ledger, in place of an entry of the same kind and
// name, and returns when that is on disk. Call it before the act.
func (h *Host) record(e entry) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := slices.IndexFunc(h.ledger.Entries, func(o entry) bool { return o.Kind == e.Kind && o.Name == e.Name })
	if i >= 0 && h.ledger.Entries[i] == e {
		return nil
	}
	entries := slices.Clone(h.ledger.Entries)
	if i >= 0 {
		old := entries[i]
		if e.Original == "" {
			e.Original = old.Original
		}
		if e.SHA256 != old.SHA256 {
			e.Before = old.SHA256
		}
		entries[i] = e
	} else {
		entries = append(entries, e)
	}
	return h.writeLedger(entries)
}

// forget takes an entry out, after the thing itself is gone.
func (h *Host) forget(kind, name string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	entries := slices.DeleteFunc(slices.Clone(h.ledger.Entries), func(e entry) bool { return e.Kind == kind && e.Name == name })
	if len(entries) == len(h.ledger.Entries) {
		return nil
	}
	return h.writeLedger(entries)
}

// writeLedger replaces the ledger on disk and in memory. The caller holds h.mu.
func (h *Host) writeLedger(entries []entry) error {
	next := ledger{Version: ledgerVersion, Entries: entries}
	if h.folder {
		h.ledger = next
		return nil
	}
	data, err := json.MarshalIndent(next, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the ledger: %w", err)
	}
	path := h.Path(LedgerPath)
	if err := os.MkdirAll(h.Path(StateDir), 0o700); err != nil {
		return fmt.Errorf("writing the ledger: %w", err)
	}
	if err := replaceFile(path, append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("writing the ledger: %w", err)
	}
	h.ledger = next
	return nil
}

// Wrote says whether a file at path would be ours: WriteFile or InstallBinary
// put one there, or began to.
func (h *Host) Wrote(path string) bool {
	_, file := h.recorded(kindFile, path)
	_, binary := h.recorded(kindBinary, path)
	return file || binary
}

// SetOwnsRuntime records that the container runtime on this host is ours:
// reset will stop it. Call it before installing it.
func (h *Host) SetOwnsRuntime() error {
	return h.record(entry{Kind: kindRuntime, Name: "containerd"})
}

// OwnsRuntime says whether the container runtime on this host is ours.
func (h *Host) OwnsRuntime() bool {
	_, ok := h.recorded(kindRuntime, "containerd")
	return ok
}
