package node

import (
	"cmp"
	"fmt"
	"path"

	"airlift/installer/config"
	"airlift/installer/etcd"
	"airlift/installer/host"
	"airlift/installer/host/ledger"
	"airlift/installer/pki"
	"airlift/internal/fault"
)

// RestoreMark is written before the first change and removed after the last step. So a run
// that was interrupted can be continued, and a complete one is not run again.
type RestoreMark struct {
	// Backup is the checksum of the backup's snapshot.
	Backup string `json:"backup"`
	Node   string `json:"node"`
	Peer   string `json:"peerURL"`
	// Token is part of the IDs of the new etcd cluster.
	Token string `json:"token"`
	// File is the path of the backup, for hints.
	File string `json:"file"`
	// ClusterUID is the UID of the namespace kube-system in the backup; empty if it is not known.
	ClusterUID string `json:"clusterUID,omitempty"`
}

// RestoreMarkPath has the RestoreMark.
const RestoreMarkPath = ledger.StateDir + "/restore.json"

// ReadRestoreMark returns the mark of an unfinished restore, nil if there is none.
func ReadRestoreMark(h *host.Host) (*RestoreMark, error) {
	return readRecord[RestoreMark](h, RestoreMarkPath, "a restore was interrupted on this host, and cannot be continued; "+ResetFirst+"; then restore again")
}

// UnfinishedRestore returns an error if a restore on this host was interrupted. Other commands that
// create or change a node would build on a part of the backup.
func UnfinishedRestore(h *host.Host) error {
	m, err := ReadRestoreMark(h)
	if err != nil || m == nil {
		return err
	}
	return fault.New(fault.Preflight, "a restore on this host is not finished").
		Hint(fmt.Sprintf("finish it, with the same flags: ./install etcd restore %s; or remove what is on this host: ./install reset", fault.Word(cmp.Or(m.File, "FILE"))))
}

// UnfinishedReset returns an error if a reset on this host was interrupted after it had removed the kubelet's
// configuration: the kubeconfigs that are left have no certificate. It also returns one if a reset began to remove a node that
// another tool made, because the ledger lists that node as if Airlift had installed it, or if disown dropped what the ledger had.
func UnfinishedReset(h *host.Host) error {
	if h.Records().DisownBegan() {
		return fault.New(fault.Preflight, "the end of this node's adoption is not finished").Hint("finish it: ./install disown")
	}
	removed := h.Records().ResetBegan() && !FileExists(h, config.KubeletConfigFile)
	if !removed && !h.Records().AssumedTraces() || !FileExists(h, KubeletConf) {
		return nil
	}
	return unfinishedReset()
}

// ResetFirst is a part of hints.
const ResetFirst = "remove what is on this host first: ./install reset"

// Compare returns an error if this restore did not write etcd's data.
func (m *RestoreMark) Compare(is etcd.Identity) error {
	want, err := etcd.RestoredIdentity(m.Node, m.Peer, m.Token)
	if err != nil || is == want {
		return err
	}
	return fault.New(fault.Preflight, "etcd on this host has data that this restore did not write: %s, want %s", is, want).
		Hint("save its data if you need it: ./install etcd snapshot FILE; then run ./install reset, and restore again")
}

// RotationInProgress refuses a command that would write the static pods of a control plane while
// its CAs are rotated: the controller manager signs with another file until the end.
func RotationInProgress(h *host.Host, c *config.Config) error {
	dir := path.Join(cmp.Or(c.CertificatesDir, config.CertificatesDir), pki.RotationDir)
	if !FileExists(h, dir) {
		return nil
	}
	return fault.New(fault.Preflight, "the CAs of this control plane are being rotated: %s exists", dir).Hint("see what to run next: ./install certs rotate-ca status; if no rotation is in progress, an interrupted start of one is left: ./install certs rotate-ca cancel")
}

// Unfinished returns an error if a restore or a reset on this host was interrupted. As soon as a reset has begun, only reset, init and join work on the
// host: its etcd member has left, so a control plane that still has all its files has no API server of its own.
func Unfinished(h *host.Host) error {
	if r := h.Records(); r.ResetBegan() || r.AssumedTraces() {
		return unfinishedReset()
	}
	return cmp.Or(UnfinishedRestore(h), UnfinishedReset(h))
}

// OpenToChange opens a host for a command that changes it, and locks it. It refuses a host on which a restore or a reset was interrupted, before the
// command writes anything. Only a command that finishes such a run, or saves what is left, uses host.OpenLocked.
func OpenToChange(root string) (h *host.Host, unlock func(), err error) {
	h, unlock, err = host.OpenLocked(root)
	if err != nil {
		return nil, nil, err
	}
	if err := Unfinished(h); err != nil {
		unlock()
		return nil, nil, err
	}
	return h, unlock, nil
}

func unfinishedReset() error {
	return fault.New(fault.Preflight, "a reset of this host is not finished").Hint("finish it: ./install reset")
}
