package node

import (
	"encoding/json"
	"slices"

	"airlift/fault"
	"airlift/images/store"
	"airlift/installer/backup"
	"airlift/installer/host"
	"airlift/installer/host/filesystem"
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
	// Finished is set when all steps have run. Another run of the same version, or undo, clears it.
	Finished bool `json:"finished,omitempty"`
}

// AttemptName names the copies of the manifests that ran before the current attempt: if a
// component's new manifest fails, its copy is restored. After a finished upgrade, the copies have
// that upgrade's version.
const AttemptName = "attempt"

// FormerName names the previous files that undo restores: those from before the first attempt.
func (s *UpgradeState) FormerName() string { return "former-" + s.To }

// upgradeStateHint is for a damaged state. The previous files of an upgrade of the same version are
// used again.
var upgradeStateHint = "it has what undo needs; to continue without undo: " + filesystem.SetAside(host.UpgradeState) +
	", and run the same command again; the previous files stay below " + host.UpgradeDir

// ReadUpgradeState returns nil if the host has no state of an upgrade.
func ReadUpgradeState(h *host.Host) (*UpgradeState, error) {
	s := &UpgradeState{}
	found, err := h.ReadState(host.UpgradeState, s, upgradeStateHint)
	switch {
	case s.Version > upgradeStateVersion: // also if this installer cannot read the rest
		return nil, fault.New(fault.Failure, "reading %s: its version is %d, this installer supports up to %d", host.UpgradeState, s.Version, upgradeStateVersion).
			Hint("use the file that upgraded this node, or a newer one")
	case err != nil || !found:
		return nil, err
	case s.Version == 0 || s.From == "" || s.To == "":
		return nil, fault.New(fault.Failure, "reading %s: the file is damaged: it has no version", host.UpgradeState).Hint(upgradeStateHint)
	}
	return s, nil
}

// Write writes the state to the host.
func (s *UpgradeState) Write(h *host.Host) error {
	s.Version = upgradeStateVersion
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return h.Upgrades().WriteUpgrade(append(data, '\n'))
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
