package installer

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"path"
	"path/filepath"

	"airlift/fault"
	"airlift/installer/backup"
	"airlift/installer/etcd"
	"airlift/installer/host"
	"airlift/installer/render"
)

// restoreMark is written before the first change and removed after the last step. So a run
// that was interrupted can be continued, and a complete one is not run again.
type restoreMark struct {
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

const restoreMarkPath = host.StateDir + "/restore.json"

// readRestoreMark returns the mark of an unfinished restore, nil if there is none.
func readRestoreMark(h *host.Host) (*restoreMark, error) {
	return readRecord[restoreMark](h, restoreMarkPath, "a restore was interrupted on this host, and cannot be continued; "+resetFirst+"; then restore again")
}

// UnfinishedRestore returns an error if a restore on this host was interrupted. Other commands that
// create or change a node would build on a part of the backup.
func UnfinishedRestore(h *host.Host) error {
	m, err := readRestoreMark(h)
	if err != nil || m == nil {
		return err
	}
	return fault.New(fault.Preflight, fmt.Sprintf("finish it, with the same flags: ./install etcd restore %s; or remove what is on this host: ./install reset", fault.Word(cmp.Or(m.File, "FILE"))),
		"a restore on this host is not finished")
}

// ownMark returns the mark that this run has written or found. Somebody may have removed it since.
func (r *Restore) ownMark() (*restoreMark, error) {
	m, err := readRestoreMark(r.existing)
	if err == nil && m == nil {
		err = fault.New(fault.Failure, resetFirst+"; then restore again", "%s was removed while the restore ran, and the restore cannot be continued without it", restoreMarkPath)
	}
	return m, err
}

// mark returns the mark of this run.
func (r *Restore) mark() restoreMark {
	m := restoreMark{Node: r.config.NodeRegistration.Name, Peer: render.EtcdPeerURL(r.config), File: r.backup.Path}
	if absolute, err := filepath.Abs(m.File); err == nil {
		m.File = absolute
	}
	for _, e := range r.backup.Manifest.Entries {
		if e.Name == backup.SnapshotName {
			m.Backup = e.SHA256
		}
	}
	return m
}

// ensureMark writes a mark, unless an earlier run has.
func (r *Restore) ensureMark() error {
	earlier, err := readRestoreMark(r.existing)
	if err != nil || earlier != nil {
		return err
	}
	m := r.mark()
	m.Token = rand.Text()
	return writeRecord(r.host, restoreMarkPath, m)
}

// checkMark refuses to continue a restore of another backup or node, and etcd's data of another cluster.
func (r *Restore) checkMark(earlier *restoreMark) error {
	if is := r.mark(); is.Backup != earlier.Backup || is.Node != earlier.Node || is.Peer != earlier.Peer {
		return fault.New(fault.Preflight, "run the same command again; or "+resetFirst, "another restore was interrupted on this host: from a different backup, or with a different node name or address")
	}
	dir := r.config.Etcd.Local.DataDir
	if !fileExists(r.existing, path.Join(dir, "member")) {
		return nil
	}
	is, err := etcd.ReadIdentity(r.existing.Path(dir))
	if err != nil {
		return fault.Wrap(err, fault.Preflight, resetFirst)
	}
	return earlier.compare(is)
}

// compare refuses an etcd whose data this restore did not write.
func (m *restoreMark) compare(is etcd.Identity) error {
	want, err := etcd.RestoredIdentity(m.Node, m.Peer, m.Token)
	if err != nil || is == want {
		return err
	}
	return fault.New(fault.Preflight, "save its data if you need it: ./install etcd snapshot FILE; then run ./install reset, and restore again",
		"etcd on this host has data that this restore did not write: %s, want %s", is, want)
}

const resetFirst = "remove what is on this host first: ./install reset"

// compareCluster refuses to continue unless etcd and the API server have what the backup has.
func (r *Restore) compareCluster(ctx context.Context) error {
	m, err := r.ownMark()
	if err != nil {
		return err
	}
	c, _, err := localEtcdClient(ctx, r.machine)
	if err != nil {
		return err
	}
	defer c.Close()
	id, err := c.Identity(ctx)
	if err != nil {
		return err
	}
	if err := m.compare(id); err != nil {
		return err
	}
	uid, err := r.client.ClusterUID(ctx)
	if err == nil && m.ClusterUID != "" && uid != m.ClusterUID {
		err = fault.New(fault.Failure, "run ./install reset, and restore again", "the API server on this host has another cluster than the backup: the UID of the namespace kube-system is %s, want %s", uid, m.ClusterUID)
	}
	return err
}
