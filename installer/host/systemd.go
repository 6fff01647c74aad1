package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"

	"airlift/fault"
	"airlift/installer/timeline"
)

// jobTimeout bounds a systemd job where the caller's context has no deadline
// of its own. 90 s is systemd's own DefaultTimeoutStartSec.
const jobTimeout = 90 * time.Second

// UnitState is what systemd knows about a unit.
type UnitState struct {
	Load     string // "loaded", "not-found", "masked", …
	Active   string // "active", "activating", "failed", …
	Sub      string // "running", "auto-restart", …
	File     string // where the unit was read from
	Result   string // of the last run: "success", "exit-code", …
	MainPID  uint32
	Restarts uint32
}

// Running says that the unit is up, and not only trying to be.
func (s UnitState) Running() bool { return s.Active == "active" }

func (s UnitState) String() string {
	text := s.Active + " (" + s.Sub + ")"
	if s.Result != "" && s.Result != "success" {
		text += ", result " + s.Result
	}
	if s.Restarts > 0 {
		text += fmt.Sprintf(", restarted %d times", s.Restarts)
	}
	return text
}

// withSystemd talks to systemd on its own private socket: a base system need
// not have a D-Bus daemon. A connection serves one call, because systemd drops
// them all when it re-executes itself.
func (h *Host) withSystemd(ctx context.Context, f func(context.Context, *dbus.Conn) error) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, jobTimeout)
		defer cancel()
	}
	conn, err := dbus.NewSystemdConnectionContext(ctx)
	if err != nil {
		return fault.New(fault.Preflight, "this host must be booted with systemd, and the installer run as root",
			"connecting to systemd: %w", err)
	}
	defer conn.Close()
	return f(ctx, conn)
}

// DaemonReload makes systemd read unit files again.
func (h *Host) DaemonReload(ctx context.Context) error {
	defer timeline.Wait(ctx, "systemd", "reload").End()
	return h.withSystemd(ctx, func(ctx context.Context, c *dbus.Conn) error {
		if err := c.ReloadContext(ctx); err != nil {
			return fmt.Errorf("reloading systemd's units: %w", err)
		}
		return nil
	})
}

// Enable makes a unit start at boot. One that somebody else enabled already
// stays theirs: reset will not disable it. written says that its file has
// changed: systemd then reads it in any case.
func (h *Host) Enable(ctx context.Context, unit string, written bool) error {
	defer timeline.Wait(ctx, "systemd", "enabling "+unit).End()
	return h.withSystemd(ctx, func(ctx context.Context, c *dbus.Conn) error {
		p, err := c.GetUnitPropertyContext(ctx, unit, "UnitFileState")
		enabled := err == nil && p.Value.Value() == "enabled"
		if enabled && !written {
			return nil
		}
		if !enabled {
			if err := h.record(entry{Kind: kindUnit, Name: unit}); err != nil {
				return err
			}
			if _, _, err := c.EnableUnitFilesContext(ctx, []string{unit}, false, false); err != nil {
				return fmt.Errorf("enabling %s: %w", unit, err)
			}
		}
		if err := c.ReloadContext(ctx); err != nil {
			return fmt.Errorf("enabling %s: reloading systemd's units: %w", unit, err)
		}
		return nil
	})
}

// EnableNow makes a unit start at boot, and starts it unless it runs.
func (h *Host) EnableNow(ctx context.Context, unit string) error {
	if err := h.Enable(ctx, unit, false); err != nil {
		return err
	}
	return h.Start(ctx, unit)
}

// Start starts a unit and waits until systemd says that it is up.
func (h *Host) Start(ctx context.Context, unit string) error {
	return h.job(ctx, "starting", unit, (*dbus.Conn).StartUnitContext)
}

// Restart stops a unit if it runs, starts it and waits.
func (h *Host) Restart(ctx context.Context, unit string) error {
	return h.job(ctx, "restarting", unit, (*dbus.Conn).RestartUnitContext)
}

// Stop stops a unit and waits until it is down. A unit that does not exist
// is down.
func (h *Host) Stop(ctx context.Context, unit string) error {
	state, err := h.Unit(ctx, unit)
	if err != nil {
		return err
	}
	if state.Load == "not-found" && state.Active == "inactive" {
		return nil
	}
	return h.job(ctx, "stopping", unit, (*dbus.Conn).StopUnitContext)
}

// DisableNow stops a unit and takes it out of the boot.
func (h *Host) DisableNow(ctx context.Context, unit string) error {
	if err := h.Stop(ctx, unit); err != nil {
		return err
	}
	return h.withSystemd(ctx, func(ctx context.Context, c *dbus.Conn) error {
		// A unit whose file is gone already is disabled as far as we are concerned.
		if _, err := c.DisableUnitFilesContext(ctx, []string{unit}, false); err != nil && !isNoSuchUnit(err) {
			return fmt.Errorf("disabling %s: %w", unit, err)
		}
		if err := c.ResetFailedUnitContext(ctx, unit); err != nil && !isNoSuchUnit(err) {
			return fmt.Errorf("disabling %s: clearing its failed state: %w", unit, err)
		}
		return nil
	})
}

func isNoSuchUnit(err error) bool {
	text := err.Error()
	return strings.Contains(text, "not loaded") || strings.Contains(text, "does not exist") ||
		strings.Contains(text, "No such file")
}

type jobFunc func(c *dbus.Conn, ctx context.Context, unit, mode string, ch chan<- string) (int, error)

// job runs one systemd job and waits for its result.
func (h *Host) job(ctx context.Context, doing, unit string, start jobFunc) error {
	defer timeline.Wait(ctx, "systemd", doing+" "+unit).End()
	var failure error
	err := h.withSystemd(ctx, func(ctx context.Context, c *dbus.Conn) error {
		began := time.Now()
		done := make(chan string, 1)
		if _, err := start(c, ctx, unit, "replace", done); err != nil {
			return fmt.Errorf("%s %s: %w", doing, unit, err)
		}
		select {
		case result := <-done:
			if result != "done" {
				failure = fmt.Errorf("systemd says %q", result)
			}
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return fmt.Errorf("%s %s: %w", doing, unit, ctx.Err())
			}
			failure = fmt.Errorf("still not done after %s", time.Since(began).Round(time.Second))
		}
		return nil
	})
	if err != nil || failure == nil {
		return err
	}
	// The caller's deadline may be what ended the wait; telling why the unit
	// is not up deserves a moment of its own.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	state, err := h.Unit(ctx, unit)
	last := state.String()
	if err != nil {
		last = err.Error()
	}
	return fault.New(fault.Failure, "see `systemctl status "+unit+"` and `journalctl -u "+unit+"`",
		"%s %s: %w; the unit is %s; its last log lines:\n%s", doing, unit, failure, last, h.Logs(ctx, unit, 15))
}

// Unit returns a unit's state. A unit that systemd does not know has Load
// "not-found".
func (h *Host) Unit(ctx context.Context, unit string) (UnitState, error) {
	var s UnitState
	err := h.withSystemd(ctx, func(ctx context.Context, c *dbus.Conn) error {
		p, err := c.GetAllPropertiesContext(ctx, unit)
		if err != nil {
			return fmt.Errorf("asking systemd about %s: %w", unit, err)
		}
		s = UnitState{
			Load: property[string](p, "LoadState"), Active: property[string](p, "ActiveState"), Sub: property[string](p, "SubState"),
			File: property[string](p, "FragmentPath"), Result: property[string](p, "Result"),
			MainPID: property[uint32](p, "MainPID"), Restarts: property[uint32](p, "NRestarts"),
		}
		return nil
	})
	return s, err
}

func property[T any](properties map[string]any, name string) T {
	value, _ := properties[name].(T)
	return value
}

// Logs returns the last lines a unit logged, for a message. It never fails:
// where there is no journal it says so.
func (h *Host) Logs(ctx context.Context, unit string, lines int) string {
	out, err := exec.CommandContext(ctx, "journalctl", "--no-pager", "--quiet", "--output=short-iso",
		fmt.Sprintf("--lines=%d", lines), "--unit="+unit).Output()
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return "(this host has no journalctl to read them with)"
	case err != nil:
		return fmt.Sprintf("(reading the journal: %v)", err)
	case len(out) == 0:
		return "(none in the journal)"
	}
	return strings.TrimRight(string(out), "\n")
}

// booted says that systemd runs this host (sd_booted(3)).
func (h *Host) booted() bool {
	info, err := os.Stat(h.Path("/run/systemd/system"))
	return err == nil && info.IsDir()
}
