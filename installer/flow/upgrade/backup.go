package upgrade

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"time"

	"airlift/installer/backup"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/payload"
	"airlift/installer/phases"
	"airlift/installer/snapshot"
	"airlift/installer/undo"
)

// backups are the backups of the cluster before an upgrade.
type backups struct {
	node         *phases.Node
	options      Options
	bundle       *payload.Bundle
	record       *record
	controlPlane *controlPlane
	saved        bool // this run has saved one
}

// save saves a backup of the cluster before the first static pod is replaced. Reset keeps it, and
// nothing removes it: it may be the only way back.
func (s *backups) save(ctx context.Context) error {
	if s.controlPlane.pods == nil || !s.record.unfinished() {
		return nil
	}
	if needed, err := s.needed(); err != nil || !needed {
		return err
	}
	e, err := node.FindEtcd(s.node.Existing)
	if err != nil {
		return err
	}
	if e == nil {
		s.node.Console.Note("etcd is external: save a snapshot where it is managed")
		return nil
	}
	if err := s.node.Host.Upgrades().PrepareBackups(); err != nil {
		return err
	}
	b := &snapshot.Backup{Machine: s.node.Machine, Kubeconfig: cmp.Or(s.options.Kubeconfig, node.AdminConf)}
	file := backupPath(s.node.Host, s.record.state.To, time.Now())
	name := func(backup.Manifest) string { return s.node.Host.Path(file) }
	if err := b.SaveNamed(ctx, name, false, &node.BackupRecord{}); err != nil {
		return err
	}
	s.node.Console.Note("%s", b.Summary)
	s.record.state.Backup, s.saved = file, true
	s.node.Changed(true)
	return s.record.write()
}

// needed reports whether this run must save a backup. The first run of an upgrade saves one. Later
// changes of the cluster are missing in that backup. So a run that will start an etcd of another
// minor version saves a new backup, because this start cannot be undone. After this start no backup
// is needed: the data is no longer from before the upgrade.
func (s *backups) needed() (bool, error) {
	if s.saved || s.record.state == nil || s.record.state.Backup == "" || s.record.state.To != s.bundle.KubernetesVersion() {
		return !s.saved, nil
	}
	now, err := s.node.ReadManifest(node.EtcdPod)
	if err != nil || now == nil || s.controlPlane.plans[node.EtcdPod] == nil {
		return false, err
	}
	same, err := node.SameEtcd(now, s.controlPlane.plans[node.EtcdPod])
	if err != nil || same {
		return false, err
	}
	_, started, err := undo.NewerEtcd(s.node.Existing, s.record.state)
	return started == "", err
}

// backupPath returns a path that no file has, for the backup before an upgrade.
func backupPath(h *host.Host, to string, now time.Time) string {
	name := path.Join(host.UpgradeBackups, "before-"+to+"-"+now.UTC().Format(snapshot.TimeFormat))
	file := name + ".tar"
	for i := 1; node.FileExists(h, file); i++ {
		file = fmt.Sprintf("%s-%d.tar", name, i)
	}
	return file
}
