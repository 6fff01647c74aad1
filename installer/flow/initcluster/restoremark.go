package initcluster

import (
	"context"
	"crypto/rand"
	"path"
	"path/filepath"

	"airlift/installer/backup"
	"airlift/installer/backup/target"
	"airlift/installer/etcd"
	"airlift/installer/node"
	"airlift/installer/render"
	"airlift/internal/fault"
)

// ownMark returns the mark that this run has written or found. It may have been removed since.
func (r *Restore) ownMark() (*node.RestoreMark, error) {
	m, err := node.ReadRestoreMark(r.Existing)
	if err == nil && m == nil {
		err = fault.New(fault.Failure, "%s was removed while the restore ran, and the restore cannot be continued without it", node.RestoreMarkPath).Hint(node.ResetFirst + "; then restore again")
	}
	return m, err
}

// mark returns the mark of this run.
func (r *Restore) mark() node.RestoreMark {
	m := node.RestoreMark{Node: r.node.Config.NodeRegistration.Name, Peer: render.EtcdPeerURL(r.node.Config), File: r.backup.Path}
	if absolute, err := filepath.Abs(m.File); err == nil && !target.IsURL(m.File) {
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
	earlier, err := node.ReadRestoreMark(r.Existing)
	if err != nil || earlier != nil {
		return err
	}
	m := r.mark()
	m.Token = rand.Text()
	return node.WriteRecord(r.Host, node.RestoreMarkPath, m)
}

// checkMark refuses to continue a restore of another backup or node, and etcd's data of another cluster.
func (r *Restore) checkMark(earlier *node.RestoreMark) error {
	if is := r.mark(); is.Backup != earlier.Backup || is.Node != earlier.Node || is.Peer != earlier.Peer {
		return fault.New(fault.Preflight, "another restore was interrupted on this host: from a different backup, or with a different node name or address").Hint("run the same command again; or " + node.ResetFirst)
	}
	dir := r.node.Config.Etcd.Local.DataDir
	if !node.FileExists(r.Existing, path.Join(dir, "member")) {
		return nil
	}
	is, err := etcd.ReadIdentity(r.Existing.Path(dir))
	if err != nil {
		return fault.Wrap(err, fault.Preflight, node.ResetFirst)
	}
	return earlier.Compare(is)
}

// compareCluster refuses to continue unless etcd and the API server have what the backup has.
func (r *Restore) compareCluster(ctx context.Context) error {
	m, err := r.ownMark()
	if err != nil {
		return err
	}
	c, _, err := node.LocalEtcdClient(ctx, r.Machine)
	if err != nil {
		return err
	}
	defer c.Close()
	id, err := c.Identity(ctx)
	if err != nil {
		return err
	}
	if err := m.Compare(id); err != nil {
		return err
	}
	uid, err := r.api.Client.ClusterUID(ctx)
	if err == nil && m.ClusterUID != "" && uid != m.ClusterUID {
		err = fault.New(fault.Failure, "the API server on this host has another cluster than the backup: the UID of the namespace kube-system is %s, want %s", uid, m.ClusterUID).Hint("run ./install reset, and restore again")
	}
	return err
}
