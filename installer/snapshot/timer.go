package snapshot

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"strings"
	"time"

	"airlift/installer/backup/target"
	"airlift/installer/host"
	"airlift/installer/host/detection"
	"airlift/installer/node"
	"airlift/installer/workflow"
	"airlift/internal/fault"
)

var backupTimer = host.Timer{Name: node.BackupTimer, About: "Backup of the Kubernetes cluster", Retry: 900}

// recipientsPath has the lines of the recipients file, for the timer.
const recipientsPath = "/etc/airlift-backup-recipients"

// A Schedule configures the backup timer.
type Schedule struct {
	Directory  string
	Elsewhere  *Destination // instead of Directory
	Every      time.Duration
	TimeZone   string // "" means UTC
	Keep       int
	Recipients string // lines of a recipients file; empty for backups that are not encrypted
}

// Schedule writes a backup now, and installs the timer that writes more.
func (b *Backup) Schedule(ctx context.Context, s Schedule) error {
	if err := node.Managed(b.Host, "; or run './install etcd snapshot' from your own timer"); err != nil {
		return err
	}
	if err := host.CheckTimeZone(b.Host, s.TimeZone); err != nil {
		return err
	}
	times, err := calendar(s.Every, cmp.Or(s.TimeZone, "UTC"))
	if err != nil {
		return err
	}
	mountPoint := ""
	if s.Elsewhere == nil {
		if mountPoint, err = detection.MountPoint(s.Directory); err != nil {
			return unusable(s.Directory, err)
		}
	}
	command, err := s.command(b.Kubeconfig, mountPoint)
	if err != nil {
		return err
	}
	install := func() error { return b.install(ctx, s, times, command) }
	if s.Elsewhere != nil {
		if err := b.load(s.Elsewhere); err != nil { // the timer gets what is read here
			return err
		}
		return b.saveElsewhere(ctx, *s.Elsewhere, s.Keep, install)
	}
	return b.saveInDirectory(ctx, s.Directory, mountPoint, s.Keep, install)
}

// install installs the timer, after its first backup.
func (b *Backup) install(ctx context.Context, s Schedule, times, command string) error {
	timer := backupTimer
	timer.Command, timer.Settings = command, s.settings(b.Kubeconfig)
	if s.Recipients != "" {
		if _, err := b.Host.WriteFile(recipientsPath, []byte(s.Recipients), 0o644); err != nil {
			return err
		}
	}
	if s.Elsewhere != nil {
		if _, err := b.Host.WriteFile(target.ConfigPath, s.Elsewhere.loaded.Data(), 0o600); err != nil {
			return err
		}
	}
	// Persistent: a time that passed while the host was off counts at boot. The delay is a random one, so
	// that control planes do not all save at the same time.
	timer.Schedule = fmt.Sprintf("OnCalendar=%s\nPersistent=true\nRandomizedDelaySec=%d\nAccuracySec=1s", times, int(min(s.Every/10, 10*time.Minute).Seconds()))
	if _, err := b.Host.EnsureTimer(ctx, timer); err != nil {
		return err
	}
	former := []string{target.FormerConfigPath}
	if s.Elsewhere == nil { // of an earlier schedule
		former = append(former, target.ConfigPath)
	}
	if err := removeFiles(b.Host, former...); err != nil {
		return err
	}
	fmt.Fprintf(b.Console.Out, "%s writes a backup to %s every %s and keeps %d; see: systemctl list-timers %s\n", timer.Unit(), s.place(), s.Every, s.Keep, timer.Unit())
	if s.Elsewhere == nil {
		return warnWaiting(b.Host, b.Console)
	}
	return nil
}

// warnWaiting reports what waits on a host for a target that no timer has any more.
func warnWaiting(h *host.Host, c *workflow.Console) error {
	list, err := node.ReadBackupList(h)
	if err != nil {
		return err
	}
	for _, w := range list.Waiting(h) {
		c.Warn("%s was not sent to %s, and no timer sends it: copy it to another machine, or remove it", path.Join(host.WaitingBackups, w.Name), w.Target)
	}
	return nil
}

// place is where the backups go: a directory or a URL.
func (s Schedule) place() string {
	if s.Elsewhere != nil {
		return s.Elsewhere.Address.String()
	}
	return s.Directory
}

// calendar returns an interval in the format of systemd's OnCalendar, in a time zone. systemd catches up a
// missed run only for calendar times, so the interval must divide an hour or a day, or be a week.
func calendar(every time.Duration, zone string) (string, error) {
	const day = 24 * time.Hour
	switch {
	case every == 7*day:
		return "Mon *-*-* 00:00:00 " + zone, nil
	case every == day:
		return "*-*-* 00:00:00 " + zone, nil
	case every >= time.Hour && day%every == 0 && every%time.Hour == 0:
		return fmt.Sprintf("*-*-* 00/%d:00:00 %s", every/time.Hour, zone), nil
	case every == time.Minute:
		return "*-*-* *:*:00 " + zone, nil
	case every > 0 && time.Hour%every == 0 && every%time.Minute == 0:
		return fmt.Sprintf("*-*-* *:00/%d:00 %s", every/time.Minute, zone), nil
	}
	return "", fault.New(fault.Usage, "--every %s: the interval must divide an hour or a day, or be a week", every).Hint("for example: 15m, 1h, 6h, 24h or 168h")
}

// command returns the arguments of the installer that the timer runs, as in a unit's ExecStart.
func (s Schedule) command(kubeconfig, mountPoint string) (string, error) {
	for _, path := range []string{s.Directory, kubeconfig, mountPoint} {
		if strings.ContainsAny(path, "%$\"\\\n") { // systemd.service(5) replaces % and $ also in quotes
			return "", fault.New(fault.Usage, "the path %q has characters that are not allowed in a systemd unit", path).Hint("choose another path")
		}
	}
	text := fmt.Sprintf(`etcd snapshot "%s" --scheduled --keep %d`, s.place(), s.Keep)
	if s.Elsewhere != nil {
		text += " --target-config " + target.ConfigPath
	} else {
		text += fmt.Sprintf(` --mount-point "%s"`, mountPoint)
	}
	if kubeconfig != node.AdminConf {
		text += fmt.Sprintf(` --kubeconfig "%s"`, kubeconfig)
	}
	if s.Recipients != "" {
		text += " --recipients-file " + recipientsPath
	}
	return text, nil
}

// settings returns the command that sets the timer. cluster apply compares it with the command of cluster.yaml.
func (s Schedule) settings(kubeconfig string) string {
	text := fmt.Sprintf("etcd snapshot %s --every %s --keep %d --time-zone %s", s.place(), s.Every, s.Keep, cmp.Or(s.TimeZone, "UTC"))
	for line := range strings.Lines(s.Recipients) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			text += " --recipient " + line
		}
	}
	if kubeconfig != node.AdminConf {
		text += " --kubeconfig " + kubeconfig
	}
	return text
}

// MarkTarget adds to the settings of the backup timer which credentials it has for a target. The unit does not have it, because all
// users can read units.
func MarkTarget(h *host.Host, timers map[string]string) error {
	words := strings.Fields(timers[backupTimer.Name])
	if len(words) < 3 || !target.IsURL(words[2]) {
		return nil
	}
	data, err := h.ReadIfExists(target.ConfigPath)
	if err != nil {
		return err
	}
	timers[backupTimer.Name] += " " + target.Mark(target.Digest(words[2], data))
	return nil
}

// RemoveTimer removes the timer. It keeps the backups.
func RemoveTimer(ctx context.Context, h *host.Host, c *workflow.Console) error {
	if !node.FileExists(h, backupTimer.UnitPath()) {
		fmt.Fprintln(c.Out, "This host has no backup timer.")
		if err := removeFiles(h, timerFiles...); err != nil { // of an interrupted run
			return err
		}
		return warnWaiting(h, c)
	}
	if err := h.RemoveTimer(ctx, backupTimer); err != nil {
		return err
	}
	if err := removeFiles(h, timerFiles...); err != nil {
		return err
	}
	fmt.Fprintf(c.Out, "%s was removed. The backups were kept.\n", backupTimer.Unit())
	return warnWaiting(h, c)
}

// timerFiles are what a timer reads, and has read in earlier versions.
var timerFiles = []string{recipientsPath, target.ConfigPath, target.FormerConfigPath}

func removeFiles(h *host.Host, paths ...string) error {
	for _, path := range paths {
		if err := h.Remove(path); err != nil {
			return err
		}
	}
	return nil
}

// unusable is the error for a directory to which no backup can be written.
func unusable(dir string, err error) error {
	return fault.New(fault.Failure, "writing a backup to %s: %w", dir, err).Hint("create it, or mount its file system")
}
