package host

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"airlift/installer/host/ledger"
	"airlift/installer/pki"
	"airlift/internal/fault"
)

// A Timer is a systemd timer, with its service, that runs the installer at CommandPath.
type Timer struct {
	Name  string // of both units, without the suffix
	About string
	// Schedule has the options of systemd.timer(5) that start it, one on each line.
	Schedule string
	Command  string // arguments of the installer, as in a unit's ExecStart
	// Retry is the pause in seconds after which the service starts again if it failed; 0 means
	// that it does not.
	Retry int
	// Settings is the command of the installer that sets the timer, "" if a plan needs no comparison. See Timers.
	Settings string
	// Quiet leaves out what systemd logs about each start and end: only the lines of the service are in the journal.
	Quiet bool
}

// CheckTimeZone returns an error of fault.Usage unless systemd on a host knows a time zone, such as "Europe/Berlin". "" is the
// zone of the host. systemd ignores times of a timer with a zone that it does not know.
func CheckTimeZone(h *Host, zone string) error {
	if zone == "" || zone == "UTC" {
		return nil
	}
	info, err := os.Stat(h.Path(path.Join(zoneDir, zone)))
	if zone != path.Clean(zone) || strings.ContainsAny(zone, " \t\n%") || strings.HasPrefix(zone, ".") || path.IsAbs(zone) || err != nil || !info.Mode().IsRegular() {
		return fault.New(fault.Usage, "--time-zone %q: this host has no such time zone in %s", zone, zoneDir).Hint("see: timedatectl list-timezones; or use UTC")
	}
	return nil
}

// zoneDir has a file for each time zone, see tzset(3).
const zoneDir = "/usr/share/zoneinfo"

func (t Timer) service() string { return t.Name + ".service" }

// Unit is the name of the timer's unit.
func (t Timer) Unit() string { return t.Name + ".timer" }

// UnitPath is the path of the timer's unit.
func (t Timer) UnitPath() string { return "/etc/systemd/system/" + t.Unit() }

func (t Timer) servicePath() string { return "/etc/systemd/system/" + t.service() }

// serviceText has a time limit that is longer than the wait for the turn of a control plane, an hour.
func (t Timer) serviceText() string {
	options := ""
	if t.Retry > 0 {
		options = fmt.Sprintf("Restart=on-failure\nRestartSec=%d\n", t.Retry)
	}
	if t.Quiet {
		options += "LogLevelMax=notice\nSyslogLevel=notice\n"
	}
	return fmt.Sprintf(`[Unit]
Description=%s
After=network-online.target containerd.service kubelet.service

[Service]
Type=oneshot
ExecStart=%s %s
Nice=10
TimeoutStartSec=2h
%s`, t.About, CommandPath, t.Command, options)
}

func (t Timer) timerText() string {
	settings := ""
	if t.Settings != "" {
		settings = settingsKey + t.Settings + "\n"
	}
	return fmt.Sprintf(`[Unit]
Description=%s
%s
[Timer]
%s

[Install]
WantedBy=timers.target
`, t.About, settings, t.Schedule)
}

// settingsKey begins the line of a timer with its settings. systemd ignores keys that begin with X-.
const settingsKey = "X-Airlift-Settings="

// Timers returns the settings of the timers of the installer that are active, by their names. One that was not started is left out.
func (h *Host) Timers(ctx context.Context) (map[string]string, error) {
	files, err := filepath.Glob(h.Path("/etc/systemd/system/airlift-*.timer"))
	if err != nil {
		return nil, err
	}
	timers := map[string]string{}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".timer")
		settings, err := h.TimerCommand(name)
		if err != nil {
			return nil, err
		}
		if settings == "" {
			continue
		}
		unit, err := h.Systemd().Unit(ctx, filepath.Base(file))
		if err != nil {
			return nil, err
		}
		if unit.Running() && !unit.Stale {
			timers[name] = settings
		}
	}
	return timers, nil
}

// TimerCommand returns the command that set a timer, "" if there is no such timer, or it has none.
func (h *Host) TimerCommand(name string) (string, error) {
	text, err := h.ReadIfExists(Timer{Name: name}.UnitPath())
	_, rest, _ := strings.Cut(string(text), "\n"+settingsKey)
	settings, _, _ := strings.Cut(rest, "\n")
	return settings, err
}

// Files are the units.
func (t Timer) Files() []pki.File {
	return []pki.File{
		{Path: t.servicePath(), Data: []byte(t.serviceText()), Mode: 0o644},
		{Path: t.UnitPath(), Data: []byte(t.timerText()), Mode: 0o644},
	}
}

// EnsureTimer copies the running installer to CommandPath, and enables the timer. Reset removes them.
func (h *Host) EnsureTimer(ctx context.Context, t Timer) (changed bool, err error) {
	if err := h.InstallSelf(ctx); err != nil {
		return false, err
	}
	for _, f := range t.Files() {
		wrote, err := h.WriteFile(f.Path, f.Data, f.Mode)
		if err != nil {
			return false, err
		}
		changed = changed || wrote
	}
	unit, err := h.Systemd().Unit(ctx, t.Unit())
	if err != nil {
		return false, err
	}
	changed = changed || unit.Stale // an earlier run may have been killed after it wrote the files
	if err := h.Systemd().Reread(ctx, t.Unit(), t.service()); err != nil {
		return false, err
	}
	if err := h.Systemd().Enable(ctx, t.Unit()); err != nil {
		return false, err
	}
	if changed { // a timer that runs keeps its old times
		return true, h.Systemd().Restart(ctx, t.Unit())
	}
	return false, h.Systemd().Start(ctx, t.Unit())
}

// RemoveTimer removes the units of a timer, and leaves the installer at CommandPath, which other
// units may run.
func (h *Host) RemoveTimer(ctx context.Context, t Timer) error {
	if err := h.Systemd().DisableNow(ctx, t.Unit()); err != nil {
		return err
	}
	if err := h.Records().Forget(ledger.Unit, t.Unit()); err != nil {
		return err
	}
	for _, file := range []string{t.UnitPath(), t.servicePath()} {
		if err := h.Remove(file); err != nil {
			return err
		}
	}
	return h.Systemd().Reread(ctx, t.Unit(), t.service())
}
