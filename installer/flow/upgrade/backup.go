package upgrade

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"airlift/installer/backup"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/payload"
	"airlift/installer/phases"
	"airlift/installer/snapshot"
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
	_, started, err := newerEtcd(s.node.Existing, s.record.state)
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

// wayBack returns the commands that return to the version before an upgrade that cannot be undone. They
// need the file of that version, which is not the one that runs now.
func wayBack(h *host.Host, s *node.UpgradeState) string {
	restore := "on one of them: ./FILE etcd restore BACKUP, with a backup from before the upgrade"
	file, earlier, err := usableBackup(h, s)
	switch {
	case file != "":
		restore = "here: ./FILE etcd restore " + file
		if err != nil {
			restore += fmt.Sprintf(" (%s cannot be used: %v)", s.Backup, err)
		}
		if earlier {
			restore += " (earlier backups are in the same directory)"
		}
	case err != nil:
		restore += fmt.Sprintf(" (%s cannot be used: %v)", s.Backup, err)
	case s.Backup != "": // of a control plane after the first one
		restore += ": it is in " + host.UpgradeBackups + " of the control plane where 'upgrade apply' ran"
	}
	return fmt.Sprintf("with the file of %s, run on each control plane: ./FILE reset --force; then %s; then join the others again", s.From, restore)
}

// usableBackup returns the newest backup from before an upgrade of the cluster, "" if there is
// none. earlier is set if older files of the upgrade exist. err is the error of reading the last
// run's backup.
func usableBackup(h *host.Host, s *node.UpgradeState) (file string, earlier bool, err error) {
	if s.Backup == "" {
		return "", false, nil
	}
	files := append([]string{s.Backup}, olderBackups(h, s)...)
	for i, file := range files {
		m, readErr := readBackupManifest(h.Path(file))
		if i == 0 {
			err = readErr
		}
		if readErr == nil && s.Precedes(m) {
			return file, i+1 < len(files), err
		}
	}
	return "", false, err
}

// olderBackups returns the other backups from before an upgrade to the same version, the newest first.
func olderBackups(h *host.Host, s *node.UpgradeState) (files []string) {
	list, _ := os.ReadDir(h.Path(host.UpgradeBackups)) // without it, there is none
	for _, entry := range slices.Backward(list) {
		file := path.Join(host.UpgradeBackups, entry.Name())
		if strings.HasPrefix(entry.Name(), "before-"+s.To+"-") && strings.HasSuffix(file, ".tar") && file != s.Backup {
			files = append(files, file)
		}
	}
	return files
}

// readBackupManifest reads the manifest of a backup that is not encrypted.
func readBackupManifest(file string) (*backup.Manifest, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return backup.ReadManifest(f)
}
