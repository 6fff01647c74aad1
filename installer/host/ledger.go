package host

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"airlift/bundle/atomicfile"
	"airlift/fault"
)

// Paths of the ledger and of saved original files.
const (
	StateDir     = "/var/lib/airlift"
	LedgerPath   = StateDir + "/ledger.json"
	originalsDir = StateDir + "/originals"
)

// Kinds of ledger entries.
const (
	kindFile    = "file"    // a text file or symbolic link that Airlift wrote
	kindSaved   = "saved"   // the copy of a file that was edited before Airlift wrote it again; reset keeps it
	kindBinary  = "binary"  // a binary that Airlift installed
	kindDir     = "dir"     // a directory that Airlift created; reset removes it if it is empty
	kindUnit    = "unit"    // a systemd unit that Airlift enabled
	kindRoute   = "route"   // a route that Airlift added
	kindRuntime = "runtime" // Airlift installed the container runtime
	kindImage   = "image"   // an image name in an existing containerd
	kindSysctl  = "sysctl"  // a kernel parameter that Airlift changed; reset keeps the value
	kindModule  = "module"  // a kernel module that Airlift loaded; reset keeps it
)

// ledgerVersion increases when older installers cannot read the file.
const ledgerVersion = 2

// A Ledger is the document at LedgerPath.
type Ledger = ledger

type ledger struct {
	Version int     `json:"version"`
	Entries []entry `json:"entries"`
}

// An entry is one thing on the host that Airlift installed, created or changed.
type entry struct {
	Kind string `json:"kind"`
	Name string `json:"name"` // a path, a unit's name or a CIDR
	// SHA256 of the content that Airlift writes; for a link, see sumAt.
	SHA256 string `json:"sha256,omitempty"`
	// Pending is set from the entry's creation until the write is done.
	// Earlier are the sums of previous writes: until then, the file may have
	// one of them.
	Pending bool     `json:"pending,omitempty"`
	Earlier []string `json:"earlier,omitempty"`
	// Site is set for one of the site's own files: components do not change it.
	Site bool `json:"site,omitempty"`
	// Original is where the replaced file was saved.
	Original string `json:"original,omitempty"`
	Device   string `json:"device,omitempty"`
	// Image is what an image name pointed to before, and what Airlift set.
	Image *imageName `json:"image,omitempty"`
	// Contents describes for people what components write there, or is the
	// path of the edited file that was saved here.
	Contents string `json:"holds,omitempty"`
	// Mode is that of a directory before components filled it.
	Mode fs.FileMode `json:"mode,omitempty"`
}

// wrote reports whether Airlift wrote content with the given sum.
func (e entry) wrote(sum string) bool { return sum == e.SHA256 || slices.Contains(e.Earlier, sum) }

// after returns e as the successor of old in the ledger, with every sum that the
// file may have until the new content is written.
func (e entry) after(old entry) entry {
	if e.Original == "" {
		e.Original = old.Original
	}
	if e.SHA256 == "" {
		return e
	}
	if e.SHA256 == old.SHA256 {
		e.Pending, e.Earlier = old.Pending, old.Earlier
		return e
	}
	for _, sum := range append(slices.Clone(old.Earlier), old.SHA256) {
		if sum != e.SHA256 && !slices.Contains(e.Earlier, sum) {
			e.Earlier = append(e.Earlier, sum)
		}
	}
	e.Pending = true
	return e
}

func (e entry) equal(o entry) bool {
	return e.Kind == o.Kind && e.Name == o.Name && e.SHA256 == o.SHA256 && e.Pending == o.Pending &&
		slices.Equal(e.Earlier, o.Earlier) && e.Site == o.Site && e.Original == o.Original && e.Device == o.Device && e.Contents == o.Contents && e.Mode == o.Mode
}

// ledgerHint is for a damaged ledger. The cluster runs without it.
var ledgerHint = "it lists what Airlift installed on this host; these work without it: ./install status, ./install doctor; to remove the node without it: " +
	SetAside(LedgerPath) + ", and ./install reset --without-ledger"

func (h Records) readLedger() error {
	found, err := h.host.ReadState(LedgerPath, &h.host.ledger, ledgerHint)
	switch {
	case h.host.ledger.Version > ledgerVersion: // also if this installer cannot read the rest
		return fault.New(fault.Failure, "reading %s: its version is %d, this installer supports up to %d", LedgerPath, h.host.ledger.Version, ledgerVersion).
			Hint("use the installer that wrote it, or a newer one")
	case err != nil:
		return err
	case !found:
		h.host.ledger = ledger{Version: ledgerVersion}
	case h.host.ledger.Version == 0:
		return fault.New(fault.Failure, "reading %s: the file is damaged: it has no version", LedgerPath).Hint(ledgerHint)
	}
	return nil
}

// Used reports whether Airlift installed something on this host.
func (h Records) Used() bool {
	h.host.mu.Lock()
	defer h.host.mu.Unlock()
	return len(h.host.ledger.Entries) > 0
}

// find returns the entry for a kind and name. The caller holds h.mu.
func (h Records) find(kind, name string) (entry, bool) {
	if i := h.index(kind, name); i >= 0 {
		return h.host.ledger.Entries[i], true
	}
	return entry{}, false
}

// index returns the position of the entry, or -1. The caller holds h.mu.
func (h Records) index(kind, name string) int {
	return slices.IndexFunc(h.host.ledger.Entries, func(e entry) bool { return e.Kind == kind && e.Name == name })
}

// recorded is find for callers without the lock.
func (h Records) recorded(kind, name string) (entry, bool) {
	h.host.mu.Lock()
	defer h.host.mu.Unlock()
	return h.find(kind, name)
}

// entries returns the entries of a kind, oldest first.
func (h Records) entries(kind string) []entry {
	h.host.mu.Lock()
	defer h.host.mu.Unlock()
	var found []entry
	for _, e := range h.host.ledger.Entries {
		if e.Kind == kind {
			found = append(found, e)
		}
	}
	return found
}

// record adds e to the ledger, or replaces the entry of the same kind and name,
// and returns when the ledger is on disk. Call it before the change itself.
func (h Records) record(e entry) error {
	h.host.mu.Lock()
	defer h.host.mu.Unlock()
	i := h.index(e.Kind, e.Name)
	if i < 0 {
		e.Pending = e.SHA256 != ""
		return h.writeLedger(append(slices.Clone(h.host.ledger.Entries), e))
	}
	if e = e.after(h.host.ledger.Entries[i]); e.equal(h.host.ledger.Entries[i]) {
		return nil
	}
	entries := slices.Clone(h.host.ledger.Entries)
	entries[i] = e
	return h.writeLedger(entries)
}

// settled records that a file or binary has its new content, so that earlier
// content cannot be there any more. The ledger's next write saves that: until
// then, the ledger on disk lists too much, which is safe.
func (h Records) settled(kind, name, sum string) error {
	h.host.mu.Lock()
	defer h.host.mu.Unlock()
	i := h.index(kind, name)
	if i < 0 || !h.host.ledger.Entries[i].Pending || h.host.ledger.Entries[i].SHA256 != sum {
		return nil
	}
	if len(h.host.ledger.Entries[i].Earlier) > 0 {
		// Earlier content must not reappear after a power failure: a run that was killed may have written
		// the file.
		if err := atomicfile.SyncDir(filepath.Dir(h.host.Path(name))); err != nil {
			return fmt.Errorf("writing %s: %w", name, err)
		}
	}
	h.host.ledger.Entries[i].Pending, h.host.ledger.Entries[i].Earlier = false, nil
	h.host.unsaved = true
	return nil
}

// save writes the changes that settled left unsaved.
func (h Records) save() error {
	h.host.mu.Lock()
	defer h.host.mu.Unlock()
	if !h.host.unsaved {
		return nil
	}
	return h.writeLedger(h.host.ledger.Entries)
}

// forget removes an entry from the ledger, after the thing itself is removed.
func (h Records) forget(kind, name string) error {
	h.host.mu.Lock()
	defer h.host.mu.Unlock()
	entries := slices.DeleteFunc(slices.Clone(h.host.ledger.Entries), func(e entry) bool { return e.Kind == kind && e.Name == name })
	if len(entries) == len(h.host.ledger.Entries) {
		return nil
	}
	return h.writeLedger(entries)
}

// writeLedger replaces the ledger on disk and in memory. The caller holds h.mu.
func (h Records) writeLedger(entries []entry) error {
	next := ledger{Version: ledgerVersion, Entries: entries}
	if h.host.outputOnly {
		h.host.ledger = next
		return nil
	}
	data, err := json.MarshalIndent(next, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the ledger: %w", err)
	}
	if err := h.makeState(); err != nil {
		return fmt.Errorf("writing the ledger: %w", err)
	}
	if err := replaceFile(h.host.Path(LedgerPath), append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("writing the ledger: %w", err)
	}
	first := len(h.host.ledger.Entries) == 0
	h.host.ledger, h.host.unsaved = next, false
	if first && h.host.run != nil {
		h.host.RunRecords().writeRun()
	}
	return nil
}

// makeState creates StateDir.
func (h Records) makeState() error {
	if _, err := h.host.place(StateDir); err != nil {
		return err
	}
	if err := os.MkdirAll(h.host.Path(StateDir), 0o700); err != nil {
		return err
	}
	_, err := h.host.place(LedgerPath)
	return err
}

// Wrote reports whether WriteFile or InstallBinary wrote the file at path, or
// began to.
func (h Records) Wrote(path string) bool {
	_, file := h.recorded(kindFile, path)
	_, binary := h.recorded(kindBinary, path)
	return file || binary
}

// SetOwnsRuntime records that Airlift installs the container runtime on this
// host, so that reset stops it. Call it before installing it.
func (h Records) SetOwnsRuntime() error {
	return h.record(entry{Kind: kindRuntime, Name: "containerd"})
}

// OwnsRuntime reports whether Airlift installed the container runtime.
func (h Records) OwnsRuntime() bool {
	_, ok := h.recorded(kindRuntime, "containerd")
	return ok
}
