package installer

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
)

// backup saves a backup of the cluster before the first static pod is replaced. Reset keeps it, and
// nothing removes it: it may be the only way back.
func (u *Upgrade) backup(ctx context.Context) error {
	if u.pods == nil || u.state == nil || u.state.Finished {
		return nil
	}
	if needed, err := u.needsBackup(); err != nil || !needed {
		return err
	}
	e, err := findEtcd(u.existing)
	if err != nil {
		return err
	}
	if e == nil {
		u.console.Note("etcd is external: save a snapshot where it is managed")
		return nil
	}
	if err := u.host.PrepareBackups(); err != nil {
		return err
	}
	b := &Backup{machine: u.machine, Kubeconfig: cmp.Or(u.options.Kubeconfig, adminConf)}
	file := backupPath(u.host, u.state.To, time.Now())
	name := func(backup.Manifest) string { return u.host.Path(file) }
	if err := b.save(ctx, name, false, &BackupRecord{}); err != nil {
		return err
	}
	u.console.Note("%s", b.Summary)
	u.state.Backup, u.saved = file, true
	u.changed(true)
	return u.state.write(u.host)
}

// needsBackup reports whether this run must save a backup. The first run of an upgrade saves one. Later it
// lacks what the cluster got since, so a run that starts an etcd of another minor version saves another:
// that cannot be undone. Once it has started, the data is not from before the upgrade.
func (u *Upgrade) needsBackup() (bool, error) {
	if u.saved || u.state == nil || u.state.Backup == "" || u.state.To != u.bundle.KubernetesVersion() {
		return !u.saved, nil
	}
	now, err := u.readManifest(etcdPod)
	if err != nil || now == nil || u.plans[etcdPod] == nil {
		return false, err
	}
	same, err := sameEtcd(now, u.plans[etcdPod])
	if err != nil || same {
		return false, err
	}
	_, started, err := newerEtcd(u.existing, u.state)
	return started == "", err
}

// backupPath returns a path that no file has, for the backup before an upgrade.
func backupPath(h *host.Host, to string, now time.Time) string {
	name := path.Join(host.UpgradeBackups, "before-"+to+"-"+now.UTC().Format(backupTime))
	file := name + ".tar"
	for i := 1; fileExists(h, file); i++ {
		file = fmt.Sprintf("%s-%d.tar", name, i)
	}
	return file
}

// wayBack returns the commands that return to the version before an upgrade that cannot be undone. They
// need the file of that version, which is not the one that runs now.
func wayBack(h *host.Host, s *upgradeState) string {
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

// usableBackup returns the newest backup from before an upgrade of the cluster, "" if there is none.
// earlier is set if older files of the upgrade exist. err is that of the last run's backup.
func usableBackup(h *host.Host, s *upgradeState) (file string, earlier bool, err error) {
	if s.Backup == "" {
		return "", false, nil
	}
	files := append([]string{s.Backup}, olderBackups(h, s)...)
	for i, file := range files {
		m, readErr := readBackupManifest(h.Path(file))
		if i == 0 {
			err = readErr
		}
		if readErr == nil && s.precedes(m) {
			return file, i+1 < len(files), err
		}
	}
	return "", false, err
}

// precedes reports whether a backup is from before an upgrade of the cluster.
func (s *upgradeState) precedes(m *backup.Manifest) bool {
	return sameMinor(m.KubernetesVersion, s.From) && (m.KubernetesVersion != s.To || s.From == s.To)
}

// olderBackups returns the other backups from before an upgrade to the same version, the newest first.
func olderBackups(h *host.Host, s *upgradeState) (files []string) {
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
