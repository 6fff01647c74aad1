package revision

import (
	"cmp"
	"encoding/json"
	"slices"

	"airlift/images/store"
	"airlift/installer/backup"
	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/host/filesystem"
	"airlift/installer/host/ledger"
	"airlift/installer/node"
	"airlift/internal/fault"
)

// recordsVersion increases when older installers cannot read the records. In version 1, upgrades and reconfigurations had a file each.
const recordsVersion = 2

// A Kind of revision is what its record and undo are for: each kind has one record, and is undone alone.
type Kind string

const (
	Upgrade     Kind = "upgrade"     // of the version
	Reconfigure Kind = "reconfigure" // of the configuration
)

// undo is the command that undoes a revision.
func (k Kind) undo() string { return "./install " + string(k) + " undo" }

// noun is how a message names a revision: "an upgrade".
func (k Kind) noun() string {
	if k == Reconfigure {
		return "a reconfiguration"
	}
	return "an upgrade"
}

// A Record is what a revision of this node records, for a run that continues it and for undo.
type Record struct {
	Kind Kind `json:"kind"`
	// From and To are Kubernetes versions.
	From string `json:"from"`
	To   string `json:"to"`
	// Bundle identifies the file.
	Bundle string `json:"bundle"`
	// Change identifies the configuration of a Reconfigure, a sha256 in hex; "" in an Upgrade.
	Change string `json:"change,omitempty"`
	// Parts are the components, kubelet and add-ons that a Reconfigure changes: the run that continues it changes no others.
	Parts []string `json:"parts,omitempty"`
	// Readers are the components that restart because of files that they read.
	Readers []string `json:"readers,omitempty"`
	// Pending are components, and kubelet and containerd, with files that the revision or its undo wrote or is about to write,
	// and that have not been restarted since. No clock is compared: it may be set back meanwhile.
	Pending []string `json:"pending,omitempty"`
	// Followers is who must follow: ControlPlanes, AllNodes or "" for nobody.
	Followers string `json:"followers,omitempty"`
	// Number is the number of the cluster's configuration when the revision begins, and then the number that it, or its undo, is
	// about to store. Stored is the same for the other counter of config.Reconfiguration. Began is what the cluster had before.
	// Followed is the number that this node followed then.
	Number   int                    `json:"number,omitempty"`
	Stored   int                    `json:"stored,omitempty"`
	Began    config.Reconfiguration `json:"began,omitzero"`
	Followed int                    `json:"followed,omitempty"`
	// Certificates are the sha256 of the files of certificates and keys that got other names, by path. One that was renewed since
	// stays when the revision is undone.
	Certificates map[string]string `json:"certificates,omitempty"`
	// Marks are the labels and taints of the node from before they were changed, nil for none.
	Marks *cluster.Marks `json:"marks,omitempty"`
	// TakenOver are files that were edited by hand and kept, with the sha256 of what Airlift wrote before. After an undo, they count
	// as edited again.
	TakenOver map[string]string `json:"takenOver,omitempty"`
	// EtcdStarted is etcd's image, recorded before the kubelet can start it.
	EtcdStarted string `json:"etcdStarted,omitempty"`
	// EtcdRenewed is set when an etcd that is not replaced has new certificates.
	EtcdRenewed bool `json:"etcdRenewed,omitempty"`
	// Backup is the file with the newest backup of the cluster from before the revision of this node.
	Backup string `json:"backup,omitempty"`
	// Cordoned is set while this run has made the node unschedulable.
	Cordoned bool `json:"cordoned,omitempty"`
	// Objects are the previous objects in the cluster that undo restores, as JSON.
	Objects []json.RawMessage `json:"objects,omitempty"`
	// ImageNames are the image names that had another image before.
	ImageNames []store.NameChange `json:"imageNames,omitempty"`
	// WasFinished is set when all steps of a Reconfigure have run once, before the node counts as one that follows it. A later
	// run, or undo, does not clear it.
	WasFinished bool `json:"wasFinished,omitempty"`
	// Finished is set when all steps have run. Another run with the same goal, or undo, clears it.
	Finished bool `json:"finished,omitempty"`
}

// Names of parts that are no static pods, in Parts and Pending.
const (
	KubeletPart = "kubelet"
	RuntimePart = "containerd"
)

// Who must follow a revision.
const ControlPlanes, AllNodes = "control-planes", "all"

// attemptName names the copies of the manifests that ran before the current attempt: if a component's new manifest fails, its copy is
// restored. After a finished upgrade, the copies have that upgrade's version.
const attemptName = "attempt"

// FormerName names the previous files that undo restores: those from before the first attempt.
func (r *Record) FormerName() string {
	if r.Change != "" {
		return "former-" + r.Change[:min(12, len(r.Change))]
	}
	return "former-" + r.To
}

// Overtaken reports whether the cluster was reconfigured since this revision. last is the cluster's last one. A run may be
// interrupted between the record of its number and the number in the cluster.
func (r *Record) Overtaken(last config.Reconfiguration) bool {
	if !last.Has(r.Number) && (r.Finished || last.Number != r.Number-1) {
		return true
	}
	return len(r.Objects) > 0 && last.Stored != r.Stored && (r.Finished || last.Stored != r.Stored-1)
}

// Files are the files that this kind of revision keeps on a host.
func (k Kind) Files(h *host.Host) host.Upgrades {
	if k == Reconfigure {
		return h.Upgrades().Reconfigurations()
	}
	return h.Upgrades()
}

// Kept are the previous files that undo restores.
func (r *Record) Kept(h *host.Host) host.Kept { return r.Kind.Files(h).Kept(r.FormerName()) }

// damagedHint is for damaged records. The previous files of an upgrade of the same version are used again.
func damagedHint(file string) string {
	return "it has what undo needs; to continue without undo: " + filesystem.SetAside(file) +
		", and run the same command again; the previous files stay below " + host.UpgradeDir + " and " + host.ReconfigureDir
}

// recordsFile is the content of host.RevisionState. Before version 2, it was the record of an upgrade itself.
type recordsFile struct {
	Version int       `json:"version"`
	Records []*Record `json:"records"`
	Record
}

// read returns the records of a host, at most one of each kind.
func read(h *host.Host) (list []*Record, err error) {
	list, version, err := readFile(h, host.RevisionState, Upgrade)
	if err != nil || version == recordsVersion {
		return list, err
	}
	former, _, err := readFile(h, host.ReconfigureState, Reconfigure)
	return append(list, former...), err
}

// readFile reads a file with records. Before version 2, it has one of a kind.
func readFile(h *host.Host, file string, kind Kind) (list []*Record, version int, err error) {
	var f recordsFile
	found, err := h.ReadState(file, &f, damagedHint(file))
	switch {
	case f.Version > recordsVersion: // also if this installer cannot read the rest
		return nil, 0, fault.New(fault.Failure, "reading %s: its version is %d, this installer supports up to %d", file, f.Version, recordsVersion).
			Hint("use the file that wrote it, or a newer one")
	case err != nil || !found:
		return nil, 0, err
	case f.Version < recordsVersion:
		f.Kind = kind
		f.Records = []*Record{&f.Record}
	}
	for _, r := range f.Records {
		damage := ""
		switch {
		case f.Version == 0 || r == nil || r.From == "" || r.To == "":
			damage = "it has no version"
		case (r.Kind == Reconfigure) != (r.Change != ""):
			damage = "it has no configuration"
		case r.Kind != Upgrade && r.Kind != Reconfigure:
			damage = "it has an unknown kind of record"
		default:
			continue
		}
		return nil, 0, fault.New(fault.Failure, "reading %s: the file is damaged: %s", file, damage).Hint(damagedHint(file))
	}
	return f.Records, f.Version, nil
}

// Read returns the record of a kind of revision, nil if the host has none.
func Read(h *host.Host, k Kind) (*Record, error) {
	list, err := read(h)
	if i := slices.IndexFunc(list, func(r *Record) bool { return r.Kind == k }); i >= 0 {
		return list[i], err
	}
	return nil, err
}

// Unfinished returns an error if a restore, a reset or a revision of this host was interrupted: other commands would build on a part
// of it. The run that continues a kind of revision accepts that one.
func Unfinished(h *host.Host, accepted ...Kind) error {
	return cmp.Or(node.Unfinished(h), UnfinishedRevision(h, accepted...))
}

// UnfinishedRevision is Unfinished without restores and resets.
func UnfinishedRevision(h *host.Host, accepted ...Kind) error {
	list, err := read(h)
	if err != nil {
		return err
	}
	for _, r := range list {
		if !r.Finished && !slices.Contains(accepted, r.Kind) {
			return fault.New(fault.Preflight, "%s was not finished", r.describe()).Hint("finish it with the same command, or undo it: " + r.Kind.undo())
		}
	}
	return nil
}

// describe names the revision: "an upgrade of this node to v1.37.1".
func (r *Record) describe() string {
	text := r.Kind.noun() + " of this node"
	if r.Kind == Upgrade {
		text += " to " + r.To
	}
	return text
}

// Write replaces the record of this kind on the host.
func (r *Record) Write(h *host.Host) error { return replace(h, r.Kind, r) }

// Remove removes the record of a kind, and what it kept. The record goes last: without it, no command would remove the files.
func Remove(h *host.Host, k Kind) error {
	if err := k.Files(h).RemoveUpgrade(); err != nil {
		return err
	}
	return replace(h, k, nil)
}

// replace replaces the record of a kind in the file, which a former build may have written. nil removes it.
func replace(h *host.Host, k Kind, by *Record) error {
	list, err := read(h)
	if err != nil {
		return err
	}
	list = slices.DeleteFunc(list, func(r *Record) bool { return r.Kind == k })
	if by != nil {
		list = append(list, by)
	}
	if len(list) == 0 {
		return h.Upgrades().RemoveState()
	}
	data, err := json.MarshalIndent(struct {
		Version int       `json:"version"`
		Records []*Record `json:"records"`
	}{recordsVersion, list}, "", "  ")
	if err != nil {
		return err
	}
	return h.Upgrades().WriteState(append(data, '\n'))
}

// Pend records that components are about to get other files, until SetRestarted.
func (r *Record) Pend(h *host.Host, names ...string) error {
	names = slices.DeleteFunc(slices.Clone(names), r.IsPending)
	if len(names) == 0 {
		return nil
	}
	r.Pending = append(r.Pending, names...)
	return r.Write(h)
}

// IsPending reports whether a component has not been restarted since it got other files. A nil record has none.
func (r *Record) IsPending(name string) bool { return r != nil && slices.Contains(r.Pending, name) }

// SetRestarted records that a component runs with its files.
func (r *Record) SetRestarted(h *host.Host, name string) error {
	if !r.IsPending(name) {
		return nil
	}
	r.Pending = slices.DeleteFunc(r.Pending, func(n string) bool { return n == name })
	return r.Write(h)
}

// KeepNames records the image names that get another image.
func (r *Record) KeepNames(changes []store.NameChange, h *host.Host) error {
	before := len(r.ImageNames)
	for _, c := range changes {
		known := slices.ContainsFunc(r.ImageNames[:before], func(o store.NameChange) bool { return o.Name == c.Name })
		if !known && c.Before != nil && !slices.Contains(c.Set, c.Before.Digest) {
			r.ImageNames = append(r.ImageNames, c)
		}
	}
	if len(r.ImageNames) == before {
		return nil
	}
	return r.Write(h)
}

// precedes reports whether a backup is from before an upgrade of the cluster.
func (r *Record) precedes(m *backup.Manifest) bool {
	return node.SameMinor(m.KubernetesVersion, r.From) && (m.KubernetesVersion != r.To || r.From == r.To)
}

// TakeOver records what Airlift wrote to a file that was edited by hand and is kept.
func (r *Record) TakeOver(h *host.Host, file string) error {
	if r.TakenOver == nil {
		r.TakenOver = map[string]string{}
	}
	e, _ := h.Records().Find(ledger.File, file)
	r.TakenOver[file] = e.SHA256
	return r.Write(h)
}

// RecordWritten records in the ledger that a file with a sum is what Airlift wrote.
func RecordWritten(h *host.Host, file, sum string) error {
	if err := h.Records().Record(ledger.Entry{Kind: ledger.File, Name: file, SHA256: sum}); err != nil {
		return err
	}
	return h.Records().Settled(ledger.File, file, sum)
}

// EditedByHand reports whether a file has other contents than Airlift wrote. A file that Airlift did not write is none.
func EditedByHand(h *host.Host, path string, now []byte) bool {
	e, recorded := h.Records().Find(ledger.File, path)
	return recorded && !e.Wrote(filesystem.Digest(now))
}
