package installer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"airlift/fault"
	"airlift/installer/backup"
	"airlift/installer/host"
)

// backupTimer writes backups.
var backupTimer = host.Timer{Name: "airlift-backup", About: "Backup of the Kubernetes cluster"}

const backupRecipients = "/etc/airlift-backup-recipients"

// backupPrefix begins the names of scheduled backups. The start of the hash of the cluster's
// CA follows, and the time: so the name of an encrypted one also identifies its cluster.
const (
	backupPrefix = "airlift-backup-"
	backupTime   = "20060102T150405Z"
)

// A BackupSchedule is what the timer does.
type BackupSchedule struct {
	Directory  string
	Every      time.Duration
	Keep       int
	Recipients string // lines of a recipients file; empty for backups that are not encrypted
}

// Schedule writes a backup now, and installs the timer that writes more.
func (b *Backup) Schedule(ctx context.Context, s BackupSchedule) error {
	if !b.host.Used() {
		return fault.New(fault.Failure, "run 'install etcd snapshot' from your own timer", "Airlift did not install this host, so reset could not remove the timer")
	}
	command, err := s.command(b.Kubeconfig)
	if err != nil {
		return err
	}
	if err := b.SaveInDirectory(ctx, s.Directory, s.Keep); err != nil {
		return err
	}
	timer := backupTimer
	timer.Command = command
	if s.Recipients != "" {
		if _, err := b.host.WriteFile(backupRecipients, []byte(s.Recipients), 0o644); err != nil {
			return err
		}
	}
	seconds := int(s.Every.Seconds())
	timer.Schedule = fmt.Sprintf("OnActiveSec=%d\nOnUnitActiveSec=%d\nAccuracySec=1min", seconds, seconds)
	if _, err := b.host.EnsureTimer(ctx, timer); err != nil {
		return err
	}
	fmt.Fprintf(b.console.Out, "%s writes a backup to %s every %s and keeps %d; see: systemctl list-timers %s\n", timer.Unit(), s.Directory, s.Every, s.Keep, timer.Unit())
	return nil
}

// command returns the arguments of the installer that the timer runs, as in a unit's ExecStart.
func (s BackupSchedule) command(kubeconfig string) (string, error) {
	for _, path := range []string{s.Directory, kubeconfig} {
		if strings.ContainsAny(path, "%$\"\\\n") { // systemd.service(5) replaces % and $ also in quotes
			return "", fault.New(fault.Usage, "choose another path", "the path %q has characters that are not allowed in a systemd unit", path)
		}
	}
	text := fmt.Sprintf(`etcd snapshot "%s" --scheduled --keep %d`, s.Directory, s.Keep)
	if kubeconfig != adminConf {
		text += fmt.Sprintf(` --kubeconfig "%s"`, kubeconfig)
	}
	if s.Recipients != "" {
		text += " --recipients-file " + backupRecipients
	}
	return text, nil
}

// StopBackups removes the timer. It keeps the backups.
func StopBackups(ctx context.Context, h *host.Host, c *Console) error {
	if !fileExists(h, backupTimer.UnitPath()) {
		fmt.Fprintln(c.Out, "This host has no backup timer.")
		return nil
	}
	if err := h.RemoveTimer(ctx, backupTimer); err != nil {
		return err
	}
	if err := h.Remove(backupRecipients); err != nil {
		return err
	}
	fmt.Fprintf(c.Out, "%s was removed. The backups were kept.\n", backupTimer.Unit())
	return nil
}

// SaveInDirectory writes a backup with the time in its name, and then removes the oldest ones
// of this cluster in the directory.
func (b *Backup) SaveInDirectory(ctx context.Context, dir string, keep int) error {
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = errors.New("it is not a directory")
	}
	if err != nil {
		err = fault.New(fault.Failure, "create it, or mount its file system", "writing a backup to %s: %w", dir, err)
		return errors.Join(err, b.record(BackupRecord{Time: time.Now().UTC().Truncate(time.Second), Path: dir, Error: err.Error()}))
	}
	prefix, err := b.scheduledPrefix()
	if err != nil {
		return err
	}
	name := prefix + time.Now().UTC().Format(backupTime) + ".tar"
	if len(b.Recipients) > 0 {
		name += ".age"
	}
	if err := b.Save(ctx, filepath.Join(dir, name), false); err != nil {
		return err
	}
	fmt.Fprintln(b.console.Out, b.Summary)
	return b.prune(dir, prefix, name, keep)
}

// scheduledPrefix begins the names of this cluster's scheduled backups.
func (b *Backup) scheduledPrefix() (string, error) {
	e, err := ownEtcd(b.host)
	if err != nil {
		return "", err
	}
	ca, err := os.ReadFile(b.host.Path(filepath.Join(e.certificates, "ca.crt")))
	if err != nil {
		return "", fmt.Errorf("reading the cluster's CA: %w", err)
	}
	hash, err := caHash(ca)
	if err != nil {
		return "", err
	}
	return backupPrefix + strings.TrimPrefix(hash, "sha256:")[:12] + "-", nil
}

// prune removes the oldest backups of this cluster in a directory, and keeps the one that was just
// written: after the clock was set back, it has the oldest name. Other files stay.
func (b *Backup) prune(dir, prefix, written string, keep int) error {
	list, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var backups []string
	for _, f := range list {
		if f.Name() != written && f.Type().IsRegular() && isScheduled(f.Name(), prefix) && isBackup(filepath.Join(dir, f.Name())) {
			backups = append(backups, filepath.Join(dir, f.Name()))
		}
	}
	slices.Sort(backups) // by time
	for _, path := range backups[:max(0, len(backups)-(keep-1))] {
		if err := host.RemoveOutput(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing the old backup %s: %w", path, err)
		}
		fmt.Fprintf(b.console.Out, "removed the old backup %s\n", path)
	}
	return nil
}

// isScheduled reports whether a name is that of a scheduled backup with a prefix.
func isScheduled(name, prefix string) bool {
	rest, ok := strings.CutPrefix(name, prefix)
	moment, tar := strings.CutSuffix(strings.TrimSuffix(rest, ".age"), ".tar")
	_, err := time.Parse(backupTime, moment)
	return ok && tar && err == nil
}

// isBackup reports whether a file begins as a backup does. An encrypted one cannot be read here.
func isBackup(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	_, err = backup.ReadManifest(f)
	return err == nil || errors.Is(err, backup.ErrEncrypted)
}
