// Package ledger lists what Airlift installed, created and claimed on a host, so that `install reset`
// can remove exactly that. An entry is written before the change itself: the ledger never lists less
// than what is on the host.
package ledger

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"

	"airlift/installer/host/filesystem"
	"airlift/internal/atomicfile"
	"airlift/internal/fault"
)

// Paths of the ledger and of saved original files.
const (
	StateDir     = "/var/lib/airlift"
	Path         = StateDir + "/ledger.json"
	OriginalsDir = StateDir + "/originals"
	// PackagesDir has the packages of the bundle while the host's package manager installs them.
	PackagesDir = StateDir + "/packages"
)

// Kinds of ledger entries.
const (
	File    = "file"    // a text file or symbolic link that Airlift wrote
	Saved   = "saved"   // the copy of a file that was edited before Airlift wrote it again; reset keeps it
	Binary  = "binary"  // a binary that Airlift installed
	Dir     = "dir"     // a directory that Airlift created; reset removes it if it is empty
	Unit    = "unit"    // a systemd unit that Airlift enabled
	Route   = "route"   // a route that Airlift added
	Runtime = "runtime" // Airlift installed the container runtime
	Image   = "image"   // an image name in an existing containerd
	Sysctl  = "sysctl"  // a kernel parameter that Airlift changed; reset keeps the value
	Module  = "module"  // a kernel module that Airlift loaded; reset keeps it
	Reset   = "reset"   // reset has begun to remove the node
	Restart = "restart" // a unit that must restart, because reset restores its files
	Package = "package" // a package of the distribution that Airlift installed
)

// Kinds of ledger entries for the pod network. Other users of CNI may share its
// directories, chains and tables.
const (
	Interface = "interface" // a network interface that flannel, CNI plugins or kube-proxy create
	Network   = "network"   // a CNI network: its addresses and its containers' records
	Chains    = "chains"    // shared chains of the portmap plugin that were not there before
)

// notes are the kinds of entries for which there is nothing to remove.
var notes = []string{Runtime, Saved, Spared, Sysctl, Module, Reset}

// Versions of the ledger. They increase when older installers cannot read the file. The ledger of an adopted
// node has adoptedVersion: an older installer would treat it as a node that Airlift installed.
const (
	ledgerVersion  = 2
	adoptedVersion = 3
)

// A Guard calls do, which changes the file at a path or writes its entry in the ledger, or prevents the
// change with an error. nil prevents nothing.
type Guard func(path string, do func() error) error

// Change calls do unless the guard prevents it.
func (g Guard) Change(path string, do func() error) error {
	if g == nil {
		return do()
	}
	return g(path, do)
}

// A Document is the document at Path.
type Document struct {
	Version int     `json:"version"`
	Entries []Entry `json:"entries"`
	// Adopted is set on a node that another tool made.
	Adopted *Adoption `json:"adopted,omitempty"`
}

// used reports whether the document has anything to record.
func (d Document) used() bool { return len(d.Entries) > 0 || d.Adopted != nil }

// An Entry is one thing on the host that Airlift installed, created or changed.
type Entry struct {
	Kind string `json:"kind"`
	Name string `json:"name"` // a path, a unit's name or a CIDR
	// SHA256 of the content that Airlift writes; for a link, see filesystem.Sum.
	SHA256 string `json:"sha256,omitempty"`
	// Pending is set from the entry's creation until the write is done. Earlier are the sums of
	// previous writes: until the write is done, the file may still have one of these sums.
	Pending bool     `json:"pending,omitempty"`
	Earlier []string `json:"earlier,omitempty"`
	// Site is set for one of the site's own files: components do not change it.
	Site bool `json:"site,omitempty"`
	// Original is where the replaced file was saved.
	Original string `json:"original,omitempty"`
	Device   string `json:"device,omitempty"`
	// Image has the previous target of an image name, and the targets that Airlift set.
	Image *imageName `json:"image,omitempty"`
	// Contents describes for people what components write there, or is the
	// path of the edited file that was saved here.
	Contents string `json:"holds,omitempty"`
	// Mode is the directory's original mode.
	Mode fs.FileMode `json:"mode,omitempty"`
	// Owner is the directory's original owner.
	Owner *Owner `json:"owner,omitempty"`
	// CopyOf is the file of which this is a copy for another user.
	CopyOf string `json:"copyOf,omitempty"`
	// Package is what Airlift installed of a package.
	Package *PackageVersions `json:"package,omitempty"`
	// Of is the node that reset has begun to remove.
	Of *Identity `json:"of,omitempty"`
}

// An Owner is a user and a group.
type Owner struct {
	UID int `json:"uid"`
	GID int `json:"gid"`
}

// PackageVersions are the versions of a package of the distribution.
type PackageVersions struct {
	Manager string `json:"manager"` // dpkg or rpm
	Version string `json:"version"` // that Airlift installed, or began to
	// Replaces is Airlift's own former version, until Version is installed.
	Replaces string `json:"replaces,omitempty"`
	// Before is the version that the host had: reset does not remove the package.
	Before string `json:"before,omitempty"`
}

// Wrote reports whether Airlift wrote content with the given sum.
func (e Entry) Wrote(sum string) bool { return sum == e.SHA256 || slices.Contains(e.Earlier, sum) }

// after returns e as the successor of old in the ledger, with every sum that the
// file may have until the new content is written.
func (e Entry) after(old Entry) Entry {
	e.Original = cmp.Or(e.Original, old.Original)
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

func (e Entry) equal(o Entry) bool {
	return e.Kind == o.Kind && e.Name == o.Name && e.SHA256 == o.SHA256 && e.Pending == o.Pending &&
		slices.Equal(e.Earlier, o.Earlier) && e.Site == o.Site && e.Original == o.Original && e.Device == o.Device && e.Contents == o.Contents && e.Mode == o.Mode && (e.Owner == nil) == (o.Owner == nil) && e.CopyOf == o.CopyOf && (e.Of == nil) == (o.Of == nil) &&
		(e.Package == nil) == (o.Package == nil) && (e.Package == nil || *e.Package == *o.Package)
}

// ledgerHint is for a damaged ledger. The cluster runs without it.
var ledgerHint = "it lists what Airlift installed on this host; these work without it: ./install status, ./install doctor; to remove the node without it: " +
	filesystem.SetAside(Path) + ", and ./install reset --without-ledger"

// Records are the ledger's entries: what Airlift wrote, claimed and owns on a host. Its methods may
// be called from several goroutines.
type Records struct {
	Guard    Guard // of the writes of the ledger
	root     filesystem.Root
	inMemory bool // nothing is written

	mu       sync.Mutex // guards the fields below and the order of writes
	document Document
	unsaved  bool // ledger has changes that are not on disk
	assumed  bool // ledger has changes for a reset that may be refused; Commit writes them
	run      *Run // the command that changes this host; nil if it is not recorded
}

// Read reads the ledger of the host at root.
func Read(root filesystem.Root) (*Records, error) {
	r := &Records{root: root}
	return r, r.read()
}

// Unread returns the records of a host whose ledger is not read.
func Unread(root filesystem.Root) *Records { return &Records{root: root} }

// InMemory returns records that are never written.
func InMemory(root filesystem.Root) *Records { return &Records{root: root, inMemory: true} }

func (r *Records) read() error {
	found, err := r.root.ReadState(Path, &r.document, ledgerHint)
	switch {
	case r.document.Version > adoptedVersion: // also if this installer cannot read the rest
		return fault.New(fault.Failure, "reading %s: its version is %d, this installer supports up to %d", Path, r.document.Version, adoptedVersion).
			Hint("use the installer that wrote it, or a newer one")
	case err != nil:
		return err
	case !found:
		r.document = Document{Version: ledgerVersion}
	case r.document.Version == 0:
		return fault.New(fault.Failure, "reading %s: the file is damaged: it has no version", Path).Hint(ledgerHint)
	case (r.document.Version == adoptedVersion) != (r.document.Adopted != nil):
		return fault.New(fault.Failure, "reading %s: the file is damaged: its version is %d, which does not fit its content", Path, r.document.Version).Hint(ledgerHint)
	}
	return nil
}

// Used reports whether Airlift installed something on this host, or adopted its node.
func (r *Records) Used() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.document.used()
}

// Manages reports whether Airlift installed or changed more on this host than packages, which any node may have, or adopted its node.
func (r *Records) Manages() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.document.Adopted != nil || slices.ContainsFunc(r.document.Entries, func(e Entry) bool { return e.Kind != Package && e.Name != PackagesDir })
}

// HasEntries reports whether the ledger has entries: Airlift installed, changed or claimed something.
func (r *Records) HasEntries() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.document.Entries) > 0
}

// find returns the entry for a kind and name. The caller holds r.mu.
func (r *Records) find(kind, name string) (Entry, bool) {
	if i := r.index(kind, name); i >= 0 {
		return r.document.Entries[i], true
	}
	return Entry{}, false
}

// index returns the position of the entry, or -1. The caller holds r.mu.
func (r *Records) index(kind, name string) int {
	return slices.IndexFunc(r.document.Entries, func(e Entry) bool { return e.Kind == kind && e.Name == name })
}

// Find is find for callers without the lock.
func (r *Records) Find(kind, name string) (Entry, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.find(kind, name)
}

// Entries returns the entries of a kind, oldest first.
func (r *Records) Entries(kind string) []Entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []Entry
	for _, e := range r.document.Entries {
		if e.Kind == kind {
			found = append(found, e)
		}
	}
	return found
}

// Record adds e to the ledger, or replaces the entry of the same kind and name,
// and returns when the ledger is on disk. Call it before the change itself.
func (r *Records) Record(e Entry) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := r.index(e.Kind, e.Name)
	if i < 0 {
		e.Pending = e.SHA256 != ""
		return r.writeLedger(e.Name, append(slices.Clone(r.document.Entries), e))
	}
	if e = e.after(r.document.Entries[i]); e.equal(r.document.Entries[i]) {
		return nil
	}
	entries := slices.Clone(r.document.Entries)
	entries[i] = e
	return r.writeLedger(e.Name, entries)
}

// Settled records that a file or binary has its new content, so that earlier
// content cannot be there any more. The ledger's next write saves that: until
// then, the ledger on disk lists too much, which is safe.
func (r *Records) Settled(kind, name, sum string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := r.index(kind, name)
	if i < 0 || !r.document.Entries[i].Pending || r.document.Entries[i].SHA256 != sum {
		return nil
	}
	if len(r.document.Entries[i].Earlier) > 0 {
		// Earlier content must not reappear after a power failure: a run that was killed may have written
		// the file.
		if err := atomicfile.SyncDir(filepath.Dir(r.root.Path(name))); err != nil {
			return fmt.Errorf("writing %s: %w", name, err)
		}
	}
	r.document.Entries[i].Pending, r.document.Entries[i].Earlier = false, nil
	r.unsaved = true
	return nil
}

// Save writes the changes that settled left unsaved. It writes nothing that a refused reset assumed.
func (r *Records) Save() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.unsaved || r.assumed {
		return nil
	}
	return r.writeLedger(Path, r.document.Entries)
}

// Forget removes an entry from the ledger, after the thing itself is removed.
func (r *Records) Forget(kind, name string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	entries := slices.DeleteFunc(slices.Clone(r.document.Entries), func(e Entry) bool { return e.Kind == kind && e.Name == name })
	if len(entries) == len(r.document.Entries) {
		return nil
	}
	return r.writeLedger(name, entries)
}

// writeLedger replaces the entries on disk and in memory, because of the entry with a name. The caller
// holds r.mu.
func (r *Records) writeLedger(name string, entries []Entry) error {
	return r.writeDocument(name, Document{Entries: entries, Adopted: r.document.Adopted})
}

// writeDocument replaces the ledger on disk and in memory. The caller holds r.mu.
func (r *Records) writeDocument(name string, next Document) error {
	next.Version = ledgerVersion
	if next.Adopted != nil {
		next.Version = adoptedVersion
	}
	if next.Entries == nil {
		next.Entries = []Entry{}
	}
	if r.inMemory {
		r.document = next
		return nil
	}
	data, err := json.MarshalIndent(next, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the ledger: %w", err)
	}
	if err := r.root.MakeDir(StateDir, 0o700); err != nil {
		return fmt.Errorf("writing the ledger: %w", err)
	}
	if err := r.Guard.Change(name, func() error { return filesystem.Replace(r.root.Path(Path), append(data, '\n'), 0o600) }); err != nil {
		return fmt.Errorf("writing the ledger: %w", err)
	}
	first := !r.document.used()
	r.document, r.unsaved, r.assumed = next, false, false
	if first && r.run != nil {
		r.writeRun()
	}
	return nil
}

// Wrote reports whether WriteFile or InstallBinary wrote the file at path, or
// began to.
func (r *Records) Wrote(path string) bool {
	_, file := r.Find(File, path)
	_, binary := r.Find(Binary, path)
	return file || binary
}

// SetOwnsRuntime records that Airlift installs the container runtime on this
// host, so that reset stops it. Call it before installing it.
func (r *Records) SetOwnsRuntime() error {
	return r.Record(Entry{Kind: Runtime, Name: "containerd"})
}

// OwnsRuntime reports whether Airlift installed the container runtime.
func (r *Records) OwnsRuntime() bool {
	_, ok := r.Find(Runtime, "containerd")
	return ok
}

// Assume adds an entry in memory. It is written by Commit, or with the next change.
func (r *Records) Assume(e Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.find(e.Kind, e.Name); !ok {
		r.document.Entries, r.assumed = append(r.document.Entries, e), true
	}
}

// Commit writes what Assume added and that EndAdoption ended the adoption, so that an interrupted reset can continue.
func (r *Records) Commit() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.assumed {
		return nil
	}
	return r.writeLedger(Path, r.document.Entries)
}

// Remove calls remove, which removes the ledger from the disk, unless the ledger still has entries
// with something to remove. On an adopted node only the entries go. With all set, the ledger goes in any case.
func (r *Records) Remove(all bool, remove func() error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !all {
		for _, e := range r.document.Entries {
			if !slices.Contains(notes, e.Kind) {
				return nil
			}
		}
		if r.document.Adopted != nil {
			return r.writeLedger(Path, nil)
		}
	}
	if err := remove(); err != nil {
		return err
	}
	r.document, r.unsaved, r.assumed = Document{Version: ledgerVersion}, false, false
	return nil
}
