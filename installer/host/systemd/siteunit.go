package systemd

import (
	"context"
	"fmt"
	"os"
	"time"

	"airlift/installer/timeline"
	"airlift/internal/fault"
)

// EnsureUnit enables a unit of the site and starts it. It restarts a unit that runs if one of
// the files changed since it started, and leaves a oneshot service that was done since then.
// It reports whether it did anything.
func (m Manager) EnsureUnit(ctx context.Context, unit string, files ...string) (changed bool, err error) {
	state, err := m.Unit(ctx, unit)
	if err != nil {
		return false, err
	}
	if state.Stale || state.Load != "loaded" {
		if err := m.Reread(ctx, unit); err != nil {
			return false, err
		}
		if state, err = m.Unit(ctx, unit); err != nil {
			return false, err
		}
	}
	if state.Load != "loaded" {
		return false, fault.New(fault.Failure, "enabling %s: systemd cannot load it: it is %s", unit, state.Load).
			Hint("see `systemctl status " + unit + "`; correct the unit's file and build the bundle again")
	}
	prepare := m.Reread
	if enabled, err := m.enable(ctx, unit); err != nil {
		return false, err
	} else if enabled { // other units that run may want it from now on
		prepare = func(ctx context.Context, _ ...string) error { return m.Reload(ctx, unit) }
	}
	if err := prepare(ctx, unit); err != nil {
		return false, err
	}
	newest, err := m.Newest(files)
	if err != nil {
		return false, err
	}
	switch {
	case state.Running() && !newest.After(state.Since):
		return false, nil
	case state.Running():
		return true, m.Restart(ctx, unit)
	case state.Type == "oneshot" && state.Result == "success" && state.Exit != nil && !newest.After(state.Exit.Finished):
		return false, nil
	}
	return true, m.Start(ctx, unit)
}

// Newest returns when the file that changed last was written.
func (m Manager) Newest(files []string) (newest time.Time, err error) {
	for _, f := range files {
		info, err := os.Stat(m.root.Path(f))
		if err != nil {
			return newest, err
		}
		if info.ModTime().After(newest) {
			newest = info.ModTime()
		}
	}
	return newest, nil
}

// StartedBefore reports whether a unit was started before one of the files was written.
func (m Manager) StartedBefore(ctx context.Context, unit string, files ...string) (bool, error) {
	newest, err := m.Newest(files)
	if err != nil || newest.IsZero() {
		return false, err
	}
	state, err := m.Unit(ctx, unit)
	return err == nil && state.Running() && newest.After(state.Since), err
}

// steadyTime is how long a unit must run to count as started: systemd considers a simple
// service active before its process has read its configuration.
const steadyTime = 2 * time.Second

// WaitSteady watches units that were just started, and returns an error with the last lines
// of the log if one of them ends.
func (m Manager) WaitSteady(ctx context.Context, units ...string) error {
	if len(units) == 0 {
		return nil
	}
	defer timeline.Wait(ctx, "systemd", "units to stay active").End()
	for end := time.Now().Add(steadyTime); ; {
		for _, unit := range units {
			state, err := m.Unit(ctx, unit)
			if err != nil {
				return err
			}
			if state.Active == "failed" || state.Ended() {
				return fault.New(fault.Failure, "starting %s: the unit is %s; its last log lines:\n%s", unit, state, m.Logs(ctx, unit, 15)).
					Hint("see `systemctl status " + unit + "` and `journalctl -u " + unit + "`")
			}
		}
		if time.Now().After(end) {
			return nil
		}
		select {
		case <-time.After(steadyTime / 10):
		case <-ctx.Done():
			return fmt.Errorf("starting units: %w", ctx.Err())
		}
	}
}

// Reapply restarts one of systemd's own services, so that it reads files below /etc again. It
// does nothing on a host that was not booted with systemd.
func (m Manager) Reapply(ctx context.Context, unit string) error {
	if !Booted(m.root) {
		return nil
	}
	return m.Restart(ctx, unit)
}
