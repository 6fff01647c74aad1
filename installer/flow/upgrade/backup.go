package upgrade

import (
	"cmp"
	"context"
	"time"

	"airlift/installer/backup"
	"airlift/installer/node"
	"airlift/installer/revision"
	"airlift/installer/snapshot"
)

// saveBackup saves a backup of the cluster before the first static pod is replaced. Reset keeps it, and
// nothing removes it: it may be the only way back.
func (u *Upgrade) saveBackup(ctx context.Context) error {
	if u.Pods == nil || !u.Unfinished() {
		return nil
	}
	if needed, err := u.needsBackup(); err != nil || !needed {
		return err
	}
	e, err := node.FindEtcd(u.Existing)
	if err != nil {
		return err
	}
	if e == nil {
		u.Console.Note("etcd is external: save a snapshot where it is managed")
		return nil
	}
	if err := u.Host.Upgrades().PrepareBackups(); err != nil {
		return err
	}
	b := &snapshot.Backup{Machine: u.Machine, Kubeconfig: cmp.Or(u.Options.Kubeconfig, node.AdminConf)}
	file := revision.BackupPath(u.Host, u.Record.To, time.Now())
	name := func(backup.Manifest) string { return u.Host.Path(file) }
	if err := b.SaveNamed(ctx, name, false, &node.BackupRecord{}); err != nil {
		return err
	}
	u.Console.Note("%s", b.Summary)
	u.Record.Backup, u.backedUp = file, true
	u.Changed(true)
	return u.WriteRecord()
}

// needsBackup reports whether this run must save a backup. The first run of an upgrade saves one. Later
// changes of the cluster are missing in that backup. So a run that will start an etcd of another
// minor version saves a new backup, because this start cannot be undone. After this start no backup
// is needed: the data is no longer from before the upgrade.
func (u *Upgrade) needsBackup() (bool, error) {
	if u.backedUp || u.Record == nil || u.Record.Backup == "" || u.Record.To != u.Bundle.KubernetesVersion() {
		return !u.backedUp, nil
	}
	now, err := u.ReadManifest(node.EtcdPod)
	if err != nil || now == nil || u.Plans[node.EtcdPod] == nil {
		return false, err
	}
	same, err := node.SameEtcd(now, u.Plans[node.EtcdPod])
	if err != nil || same {
		return false, err
	}
	_, started, err := revision.NewerEtcd(u.Existing, u.Record)
	return started == "", err
}
