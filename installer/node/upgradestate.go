package node

import (
	"encoding/json"
	"path"
	"slices"

	"airlift/images/store"
	"airlift/installer/backup"
	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/host/filesystem"
	"airlift/installer/host/ledger"
	"airlift/internal/fault"
)

// upgradeStateVersion increases when older installers cannot read the state.
const upgradeStateVersion = 1

// An UpgradeState is what an upgrade of this host records, for a run that continues it and for
// undo.
type UpgradeState struct {
	Version int `json:"version"`
	// From and To are Kubernetes versions.
	From string `json:"from"`
	To   string `json:"to"`
	// Bundle identifies the file.
	Bundle string `json:"bundle"`
	// Change identifies the configuration that a reconfiguration stores, a sha256 in hex; "" in the state of an upgrade.
	Change string `json:"change,omitempty"`
	// Parts are the components, kubelet and add-ons that a reconfiguration changes: the run that continues it changes no others.
	Parts []string `json:"parts,omitempty"`
	// Readers are the components that a reconfiguration restarts because of files that they read.
	Readers []string `json:"readers,omitempty"`
	// Pending are components, and kubelet and containerd, with files that a reconfiguration or its undo wrote or is about to write,
	// and that have not been restarted since. No clock is compared: it may be set back meanwhile.
	Pending []string `json:"pending,omitempty"`
	// Followers is who must follow a reconfiguration: ControlPlanes, AllNodes or "" for nobody.
	Followers string `json:"followers,omitempty"`
	// Number is the number of the cluster's configuration when a reconfiguration begins, and then the number that it, or its undo, is
	// about to store. Stored is the same for the other counter of config.Reconfiguration. Began is what the cluster had before.
	// Followed is the number that this node followed then.
	Number   int                    `json:"number,omitempty"`
	Stored   int                    `json:"stored,omitempty"`
	Began    config.Reconfiguration `json:"began,omitzero"`
	Followed int                    `json:"followed,omitempty"`
	// Certificates are the sha256 of the files of certificates and keys that a reconfiguration wrote, by path. One that was
	// renewed since stays when the reconfiguration is undone.
	Certificates map[string]string `json:"certificates,omitempty"`
	// Marks are the labels and taints of the node from before a reconfiguration that changes them, nil for none.
	Marks *cluster.Marks `json:"marks,omitempty"`
	// TakenOver are files that were edited by hand and that a reconfiguration kept, with the sha256 of what Airlift wrote before. After
	// an undo, they count as edited again.
	TakenOver map[string]string `json:"takenOver,omitempty"`
	// EtcdStarted is etcd's image, recorded before the kubelet can start it.
	EtcdStarted string `json:"etcdStarted,omitempty"`
	// EtcdRenewed is set when an etcd that is not replaced has new certificates.
	EtcdRenewed bool `json:"etcdRenewed,omitempty"`
	// Backup is the file with the newest backup of the cluster from before the upgrade of this node.
	Backup string `json:"backup,omitempty"`
	// Cordoned is set while this run has made the node unschedulable.
	Cordoned bool `json:"cordoned,omitempty"`
	// Objects are the previous objects in the cluster that undo restores, as JSON.
	Objects []json.RawMessage `json:"objects,omitempty"`
	// ImageNames are the image names that had another image before.
	ImageNames []store.NameChange `json:"imageNames,omitempty"`
	// WasFinished is set when all steps of a reconfiguration have run once, before the node counts as one that follows it. A later
	// run, or undo, does not clear it.
	WasFinished bool `json:"wasFinished,omitempty"`
	// Finished is set when all steps have run. Another run of the same version, or undo, clears it.
	Finished bool `json:"finished,omitempty"`
}

// Who must follow a reconfiguration.
const ControlPlanes, AllNodes = "control-planes", "all"

// AttemptName names the copies of the manifests that ran before the current attempt: if a
// component's new manifest fails, its copy is restored. After a finished upgrade, the copies have
// that upgrade's version.
const AttemptName = "attempt"

// FormerName names the previous files that undo restores: those from before the first attempt.
func (s *UpgradeState) FormerName() string {
	if s.Change != "" {
		return "former-" + s.Change[:min(12, len(s.Change))]
	}
	return "former-" + s.To
}

// Overtaken reports whether the cluster was reconfigured since this reconfiguration. last is the cluster's last one. A run may be
// interrupted between the record of its number and the number in the cluster.
func (s *UpgradeState) Overtaken(last config.Reconfiguration) bool {
	if !last.Has(s.Number) && (s.Finished || last.Number != s.Number-1) {
		return true
	}
	return len(s.Objects) > 0 && last.Stored != s.Stored && (s.Finished || last.Stored != s.Stored-1)
}

// Files are the files of the upgrade or of the reconfiguration on a host.
func (s *UpgradeState) Files(h *host.Host) host.Upgrades {
	if s.Change != "" {
		return h.Upgrades().Reconfigurations()
	}
	return h.Upgrades()
}

// Kept are the previous files that undo restores.
func (s *UpgradeState) Kept(h *host.Host) host.Kept { return s.Files(h).Kept(s.FormerName()) }

// upgradeStateHint is for a damaged state. The previous files of an upgrade of the same version are
// used again.
func upgradeStateHint(file string) string {
	return "it has what undo needs; to continue without undo: " + filesystem.SetAside(file) +
		", and run the same command again; the previous files stay below " + path.Dir(file)
}

// ReadUpgradeState returns nil if the host has no state of an upgrade.
func ReadUpgradeState(h *host.Host) (*UpgradeState, error) {
	return readUpgradeState(h, host.UpgradeState)
}

// ReadReconfigureState returns nil if the host has no state of a reconfiguration.
func ReadReconfigureState(h *host.Host) (*UpgradeState, error) {
	s, err := readUpgradeState(h, host.ReconfigureState)
	if err == nil && s != nil && s.Change == "" {
		return nil, fault.New(fault.Failure, "reading %s: the file is damaged: it has no configuration", host.ReconfigureState).Hint(upgradeStateHint(host.ReconfigureState))
	}
	return s, err
}

func readUpgradeState(h *host.Host, file string) (*UpgradeState, error) {
	s := &UpgradeState{}
	found, err := h.ReadState(file, s, upgradeStateHint(file))
	switch {
	case s.Version > upgradeStateVersion: // also if this installer cannot read the rest
		return nil, fault.New(fault.Failure, "reading %s: its version is %d, this installer supports up to %d", file, s.Version, upgradeStateVersion).
			Hint("use the file that wrote it, or a newer one")
	case err != nil || !found:
		return nil, err
	case s.Version == 0 || s.From == "" || s.To == "":
		return nil, fault.New(fault.Failure, "reading %s: the file is damaged: it has no version", file).Hint(upgradeStateHint(file))
	}
	return s, nil
}

// UnfinishedUpgrade returns an error if an upgrade of this host was interrupted.
func UnfinishedUpgrade(h *host.Host) error {
	s, err := ReadUpgradeState(h)
	if err != nil || s == nil || s.Finished {
		return err
	}
	return fault.New(fault.Preflight, "an upgrade of this node to %s was not finished", s.To).
		Hint("finish the upgrade first, or undo it: ./install upgrade undo")
}

// UnfinishedReconfigure returns an error if a reconfiguration of this host was interrupted. Other commands would build on a
// part of it.
func UnfinishedReconfigure(h *host.Host) error {
	s, err := ReadReconfigureState(h)
	if err != nil || s == nil || s.Finished {
		return err
	}
	return fault.New(fault.Preflight, "a reconfiguration of this node is not finished").
		Hint("finish it with the same command, or undo it: ./install reconfigure undo")
}

// Write writes the state to the host.
func (s *UpgradeState) Write(h *host.Host) error {
	s.Version = upgradeStateVersion
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return s.Files(h).WriteUpgrade(append(data, '\n'))
}

// Pend records that components are about to get other files, until SetRestarted.
func (s *UpgradeState) Pend(h *host.Host, names ...string) error {
	names = slices.DeleteFunc(slices.Clone(names), s.IsPending)
	if len(names) == 0 {
		return nil
	}
	s.Pending = append(s.Pending, names...)
	return s.Write(h)
}

// IsPending reports whether a component has not been restarted since it got other files. A nil state has none.
func (s *UpgradeState) IsPending(name string) bool {
	return s != nil && slices.Contains(s.Pending, name)
}

// SetRestarted records that a component runs with its files.
func (s *UpgradeState) SetRestarted(h *host.Host, name string) error {
	if !s.IsPending(name) {
		return nil
	}
	s.Pending = slices.DeleteFunc(s.Pending, func(n string) bool { return n == name })
	return s.Write(h)
}

// KeepNames records the image names that get another image.
func (s *UpgradeState) KeepNames(changes []store.NameChange, h *host.Host) error {
	more := moved(s.ImageNames, changes)
	if len(more) == 0 {
		return nil
	}
	s.ImageNames = append(s.ImageNames, more...)
	return s.Write(h)
}

// moved returns the names whose image an import replaces, without the names in old.
func moved(old, changes []store.NameChange) (list []store.NameChange) {
	for _, c := range changes {
		known := slices.ContainsFunc(old, func(o store.NameChange) bool { return o.Name == c.Name })
		if !known && c.Before != nil && !slices.Contains(c.Set, c.Before.Digest) {
			list = append(list, c)
		}
	}
	return list
}

// Precedes reports whether a backup is from before an upgrade of the cluster.
func (s *UpgradeState) Precedes(m *backup.Manifest) bool {
	return SameMinor(m.KubernetesVersion, s.From) && (m.KubernetesVersion != s.To || s.From == s.To)
}

// TakeOver records what Airlift wrote to a file that was edited by hand and is kept.
func (s *UpgradeState) TakeOver(h *host.Host, file string) error {
	if s.TakenOver == nil {
		s.TakenOver = map[string]string{}
	}
	e, _ := h.Records().Find(ledger.File, file)
	s.TakenOver[file] = e.SHA256
	return s.Write(h)
}

// RecordWritten records in the ledger that a file with a sum is what Airlift wrote.
func RecordWritten(h *host.Host, file, sum string) error {
	if err := h.Records().Record(ledger.Entry{Kind: ledger.File, Name: file, SHA256: sum}); err != nil {
		return err
	}
	return h.Records().Settled(ledger.File, file, sum)
}
