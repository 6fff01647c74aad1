package installer

import (
	"encoding/json"

	"airlift/fault"
	"airlift/images/store"
	"airlift/installer/host"
)

// upgradeStateVersion increases when older installers cannot read the state.
const upgradeStateVersion = 1

// An upgradeState is what an upgrade of this host records, for a run that continues it and for
// undo.
type upgradeState struct {
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

// attemptName names the copies of the manifests that ran before the current attempt: those that a
// component gets back if its new manifest fails. After a finished upgrade, they are of its version.
const attemptName = "attempt"

// formerName names the previous files that undo restores: those from before the first attempt.
func (s *upgradeState) formerName() string { return "former-" + s.To }

// upgradeStateHint is for a damaged state. The previous files of an upgrade of the same version are
// used again.
var upgradeStateHint = "it has what undo needs; to continue without undo: " + host.SetAside(host.UpgradeState) +
	", and run the same command again; the previous files stay below " + host.UpgradeDir

// readUpgradeState returns nil if the host has no state of an upgrade.
func readUpgradeState(h *host.Host) (*upgradeState, error) {
	s := &upgradeState{}
	found, err := h.ReadState(host.UpgradeState, s, upgradeStateHint)
	switch {
	case s.Version > upgradeStateVersion: // also if this installer cannot read the rest
		return nil, fault.New(fault.Failure, "use the file that upgraded this node, or a newer one",
			"reading %s: its version is %d, this installer supports up to %d", host.UpgradeState, s.Version, upgradeStateVersion)
	case err != nil || !found:
		return nil, err
	case s.Version == 0 || s.From == "" || s.To == "":
		return nil, fault.New(fault.Failure, upgradeStateHint, "reading %s: the file is damaged: it has no version", host.UpgradeState)
	}
	return s, nil
}

func (s *upgradeState) write(h *host.Host) error {
	s.Version = upgradeStateVersion
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return h.WriteUpgrade(append(data, '\n'))
}

// keepNames records the image names that get another image.
func (s *upgradeState) keepNames(changes []store.NameChange, h *host.Host) error {
	more := moved(s.ImageNames, changes)
	if len(more) == 0 {
		return nil
	}
	s.ImageNames = append(s.ImageNames, more...)
	return s.write(h)
}
