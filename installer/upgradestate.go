package installer

import (
	"encoding/json"
	"fmt"

	"airlift/images/store"
	"airlift/installer/host"
)

// An upgradeState is what an upgrade of this host records, for a run that continues it and for
// undo.
type upgradeState struct {
	// From and To are Kubernetes versions.
	From string `json:"from"`
	To   string `json:"to"`
	// Bundle identifies the file.
	Bundle string `json:"bundle"`
	// EtcdFrom and EtcdTo are etcd's images; empty without an etcd on this host.
	EtcdFrom string `json:"etcdFrom,omitempty"`
	EtcdTo   string `json:"etcdTo,omitempty"`
	// EtcdRenewed is set when an etcd that is not replaced has new certificates.
	EtcdRenewed bool `json:"etcdRenewed,omitempty"`
	// Snapshot is the file with etcd's data from before the upgrade.
	Snapshot string `json:"snapshot,omitempty"`
	// Cordoned is set while this run has made the node unschedulable.
	Cordoned bool `json:"cordoned,omitempty"`
	// Objects are the previous objects in the cluster that undo restores, as JSON.
	Objects []json.RawMessage `json:"objects,omitempty"`
	// ImageNames are the image names that had another image before.
	ImageNames []store.NameChange `json:"imageNames,omitempty"`
	// Finished is set when all steps have run.
	Finished bool `json:"finished,omitempty"`
}

// readUpgradeState returns nil if the host has no state of an upgrade.
func readUpgradeState(h *host.Host) (*upgradeState, error) {
	data, err := h.ReadUpgrade()
	if err != nil || data == nil {
		return nil, err
	}
	s := &upgradeState{}
	if err := json.Unmarshal(data, s); err != nil {
		return nil, fmt.Errorf("reading the state of the last upgrade: %w", err)
	}
	return s, nil
}

func (s *upgradeState) write(h *host.Host) error {
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
