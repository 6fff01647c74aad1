package installer

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path"
	"time"

	"airlift/installer/backup"
	"airlift/installer/host"
)

// backup saves a backup of the cluster before the first static pod is replaced. Reset keeps it, and
// nothing removes it: it may be the only way back.
func (u *Upgrade) backup(ctx context.Context) error {
	if u.pods == nil || u.state == nil || u.state.Finished || u.state.Backup != "" {
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
	u.state.Backup = file
	u.changed(true)
	return u.state.write(u.host)
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

// wayBack returns the commands that return to the version before an upgrade that cannot be undone.
func wayBack(h *host.Host, s *upgradeState) string {
	restore := "on one of them: ./install etcd restore FILE, with a backup from before the upgrade"
	if s.Backup != "" {
		m, err := readBackupManifest(h.Path(s.Backup))
		switch {
		case err != nil:
			restore += fmt.Sprintf(" (%s cannot be used: %v)", s.Backup, err)
		case !sameMinor(m.KubernetesVersion, s.From): // of a control plane after the first one
			restore += ": it is in " + host.UpgradeBackups + " of the control plane where 'upgrade apply' ran"
		default:
			restore = "here: ./install etcd restore " + s.Backup
		}
	}
	return fmt.Sprintf("with the file of %s, run on each control plane: ./install reset --force; then %s; then join the others again", s.From, restore)
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
