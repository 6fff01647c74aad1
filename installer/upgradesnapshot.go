package installer

import (
	"context"
	"path"

	"airlift/installer/host"
	"airlift/progress"
)

// upgradeSnapshot is etcd's data from before the last upgrade. The next upgrade replaces it.
const upgradeSnapshot = host.UpgradeDir + "/etcd-snapshot.db"

// snapshot saves etcd's data before the first static pod is replaced.
func (u *Upgrade) snapshot(ctx context.Context) error {
	if u.pods == nil || u.state == nil || u.state.Finished || u.state.Snapshot != "" {
		return nil
	}
	e, err := findEtcd(u.existing)
	if err != nil {
		return err
	}
	if e == nil {
		u.console.Note("etcd is external: save a snapshot where it is managed")
		return nil
	}
	if err := u.host.PrepareUpgrade(); err != nil {
		return err
	}
	saved, err := saveSnapshot(ctx, u.machine, path.Clean(u.host.Path(upgradeSnapshot)))
	if err != nil {
		return err
	}
	u.console.Note("%s: revision %d, %d keys, %s", upgradeSnapshot, saved.Revision, saved.Keys, progress.Bytes(saved.Size))
	u.state.Snapshot = upgradeSnapshot
	u.changed(true)
	return u.state.write(u.host)
}
