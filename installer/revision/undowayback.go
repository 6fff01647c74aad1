package revision

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"airlift/installer/backup"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/snapshot"
)

// NewerEtcd returns etcd's image from before an upgrade, and the image of another minor version if
// this version may have been started since. started is "" without such an image.
func NewerEtcd(h *host.Host, s *Record) (from, started string, err error) {
	former, err := s.Kept(h).Read(node.EtcdManifest)
	if err != nil || former == nil {
		return "", "", err
	}
	if from, err = node.PodImage(former); err != nil {
		return "", "", fmt.Errorf("reading the previous manifest of etcd: %w", err)
	}
	images := []string{s.EtcdStarted}
	now, err := (&node.Machine{Existing: h}).ReadManifest(node.EtcdPod)
	if err != nil {
		return "", "", err
	}
	if now != nil {
		is, err := node.PodImage(now)
		if err != nil {
			return "", "", fmt.Errorf("reading %s: %w", node.EtcdManifest, err)
		}
		images = append(images, is)
	}
	for _, image := range images {
		if image != "" && !node.SameEtcdImage(from, image) {
			return from, image, nil
		}
	}
	return from, "", nil
}

// wayBack returns the commands that return to the version before an upgrade that cannot be undone. They
// need the file of that version, which is not the one that runs now.
func wayBack(h *host.Host, s *Record) string {
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
func usableBackup(h *host.Host, s *Record) (file string, earlier bool, err error) {
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

// olderBackups returns the other backups from before an upgrade to the same version, the newest first.
func olderBackups(h *host.Host, s *Record) (files []string) {
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

// BackupPath returns a path that no file has, for the backup before an upgrade.
func BackupPath(h *host.Host, to string, now time.Time) string {
	name := path.Join(host.UpgradeBackups, "before-"+to+"-"+now.UTC().Format(snapshot.TimeFormat))
	file := name + ".tar"
	for i := 1; node.FileExists(h, file); i++ {
		file = fmt.Sprintf("%s-%d.tar", name, i)
	}
	return file
}
