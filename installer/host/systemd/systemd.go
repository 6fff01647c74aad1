// Package systemd starts, stops, enables and watches units, and reads their logs.
package systemd

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"

	"airlift/installer/host/filesystem"
	"airlift/installer/timeline"
	"airlift/internal/childprocess"
	"airlift/internal/fault"
)

// jobTimeout limits a systemd job if the caller's context has no deadline. 90 s
// is systemd's DefaultTimeoutStartSec. A unit that wants network-online.target, as
// the kubelet's, waits before that for the network manager: systemd-networkd gives
// up after 120 s, for example if one interface has no cable.
const jobTimeout = (120 + 90) * time.Second

// UnitState is the state of a unit in systemd.
type UnitState struct {
	Load       string   // "loaded", "not-found", "masked", …
	Active     string   // "active", "activating", "failed", …
	Sub        string   // "running", "auto-restart", …
	File       string   // where the unit was read from
	DropIns    []string // the files that are merged into it, in that order
	Type       string   // of a service: "simple", "oneshot", …
	Result     string   // of the last run: "success", "exit-code", …
	MainPID    uint32
	Restarts   uint32
	Invocation string // ID of the last run, as in the journal
	// Enabled reports whether the unit starts at boot.
	Enabled bool
	// Stale reports whether a file of the unit changed since systemd read it.
	Stale bool
	// Since is when the unit became active; zero if it never was.
	Since time.Time
	// Exit is how the main process ended; nil while it runs, and before its
	// first start.
	Exit *UnitExit
}

// UnitExit is how the main process of a unit ended.
type UnitExit struct {
	Signal            bool  // a signal killed it
	Code              int32 // its exit code, or the number of the signal
	Started, Finished time.Time
}

// Ended reports whether the unit's process has ended without a request: systemd
// starts it again after a pause, or has given up.
func (s UnitState) Ended() bool {
	return s.Exit != nil && (s.Active == "failed" || strings.HasPrefix(s.Sub, "auto-restart"))
}

// Running reports whether the unit is active, not only activating.
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

// A Manager is the systemd of a host.
type Manager struct {
	root    filesystem.Root
	connect func(context.Context) (Conn, error)
	// record is called before a unit is enabled that was not.
	record func(unit string) error
	// written are the files of units that this process has changed.
	written *Written
}

// A Conn is a connection to systemd. Its methods have the signatures of go-systemd's.
type Conn interface {
	Close()
	ReloadContext(ctx context.Context) error
	GetUnitPropertyContext(ctx context.Context, unit, name string) (*dbus.Property, error)
	GetAllPropertiesContext(ctx context.Context, unit string) (map[string]any, error)
	ListJobsContext(ctx context.Context) ([]dbus.JobStatus, error)
	StartUnitContext(ctx context.Context, unit, mode string, done chan<- string) (job int, err error)
	RestartUnitContext(ctx context.Context, unit, mode string, done chan<- string) (job int, err error)
	StopUnitContext(ctx context.Context, unit, mode string, done chan<- string) (job int, err error)
	EnableUnitFilesContext(ctx context.Context, units []string, runtime, force bool) (carriesInstall bool, changes []dbus.EnableUnitFileChange, err error)
	DisableUnitFilesContext(ctx context.Context, units []string, runtime bool) ([]dbus.DisableUnitFileChange, error)
	ResetFailedUnitContext(ctx context.Context, unit string) error
}

// New returns the systemd of the host at root. connect replaces the connection to this machine's systemd, if it
// is not nil. record is called before a unit is enabled that was not. written are the files of units that change.
func New(root filesystem.Root, connect func(context.Context) (Conn, error), record func(unit string) error, written *Written) Manager {
	if connect == nil {
		connect = func(ctx context.Context) (Conn, error) { return dbus.NewSystemdConnectionContext(ctx) }
	}
	return Manager{root, connect, record, written}
}

// Booted reports whether this host was booted with systemd (sd_booted(3)).
func Booted(root filesystem.Root) bool {
	info, err := os.Stat(root.Path("/run/systemd/system"))
	return err == nil && info.IsDir()
}

// withSystemd connects to systemd's private socket, because a base system may
// have no D-Bus daemon. Each call gets its own connection, because systemd closes
// all connections when it re-executes itself.
func (m Manager) withSystemd(ctx context.Context, f func(context.Context, Conn) error) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, jobTimeout)
		defer cancel()
	}
	conn, err := m.connect(ctx)
	if err != nil {
		return fault.New(fault.Preflight, "connecting to systemd: %w", err).
			Hint("boot this host with systemd, and run the installer as root")
	}
	defer conn.Close()
	return f(ctx, conn)
}

// Enable makes a unit start at boot, and systemd read its present files. Reset does not disable a unit that was
// enabled before.
func (m Manager) Enable(ctx context.Context, unit string) error {
	if _, err := m.enable(ctx, unit); err != nil {
		return err
	}
	return m.Reread(ctx, unit)
}

// enable makes a unit start at boot, and reports whether it did not before.
func (m Manager) enable(ctx context.Context, unit string) (enabled bool, err error) {
	defer timeline.Wait(ctx, "systemd", "enabling "+unit).End()
	err = m.withSystemd(ctx, func(ctx context.Context, c Conn) error {
		p, err := c.GetUnitPropertyContext(ctx, unit, "UnitFileState")
		if err == nil && p.Value.Value() == "enabled" {
			return nil
		}
		if err := m.record(unit); err != nil {
			return err
		}
		if _, _, err := c.EnableUnitFilesContext(ctx, []string{unit}, false, false); err != nil {
			return fmt.Errorf("enabling %s: %w", unit, err)
		}
		enabled = true
		return nil
	})
	return enabled, err
}

// EnableNow makes a unit start at boot, and starts it unless it runs.
func (m Manager) EnableNow(ctx context.Context, unit string) error {
	if err := m.Enable(ctx, unit); err != nil {
		return err
	}
	return m.Start(ctx, unit)
}

// Start starts a unit and waits until it is active.
func (m Manager) Start(ctx context.Context, unit string) error {
	return m.job(ctx, "starting", unit, Conn.StartUnitContext)
}

// StartSoon asks systemd to start a unit, and does not wait for it.
func (m Manager) StartSoon(ctx context.Context, unit string) error {
	return m.withSystemd(ctx, func(ctx context.Context, c Conn) error {
		if _, err := c.StartUnitContext(ctx, unit, "replace", nil); err != nil {
			return fmt.Errorf("starting %s: %w", unit, err)
		}
		return nil
	})
}

// Restart stops a unit if it runs, starts it and waits until it is active.
func (m Manager) Restart(ctx context.Context, unit string) error {
	return m.job(ctx, "restarting", unit, Conn.RestartUnitContext)
}

// Stop stops a unit and waits until it is inactive. A unit that does not exist
// counts as inactive.
func (m Manager) Stop(ctx context.Context, unit string) error {
	state, err := m.Unit(ctx, unit)
	if err != nil {
		return err
	}
	if state.Load == "not-found" && state.Active == "inactive" {
		return nil
	}
	return m.job(ctx, "stopping", unit, Conn.StopUnitContext)
}

// DisableNow stops a unit and disables it.
func (m Manager) DisableNow(ctx context.Context, unit string) error {
	if err := m.Stop(ctx, unit); err != nil {
		return err
	}
	return m.Disable(ctx, unit)
}

// Disable lets a unit not start at boot any more, and does not stop it: it may be the one of this process.
func (m Manager) Disable(ctx context.Context, unit string) error {
	return m.withSystemd(ctx, func(ctx context.Context, c Conn) error {
		// A unit without a file counts as disabled.
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

// runningJobs names the units with running jobs, for which other jobs may wait.
func (m Manager) runningJobs(ctx context.Context) string {
	var units []string
	err := m.withSystemd(ctx, func(ctx context.Context, c Conn) error {
		jobs, err := c.ListJobsContext(ctx)
		for _, j := range jobs {
			if j.Status == "running" {
				units = append(units, j.Unit)
			}
		}
		return err
	})
	if err != nil {
		return ""
	}
	return strings.Join(units, ", ")
}

type jobFunc func(c Conn, ctx context.Context, unit, mode string, ch chan<- string) (int, error)

// job runs one systemd job and waits for its result.
func (m Manager) job(ctx context.Context, doing, unit string, start jobFunc) error {
	defer timeline.Wait(ctx, "systemd", doing+" "+unit).End()
	var failure error
	err := m.withSystemd(ctx, func(ctx context.Context, c Conn) error {
		began := time.Now()
		done := make(chan string, 1)
		if _, err := start(c, ctx, unit, "replace", done); err != nil {
			return fmt.Errorf("%s %s: %w", doing, unit, err)
		}
		select {
		case result := <-done:
			if result != "done" {
				failure = fmt.Errorf("systemd reports %q", result)
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
	// The caller's deadline may have ended the wait: reading the unit's state
	// and log gets extra time.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	state, err := m.Unit(ctx, unit)
	last := state.String()
	if err != nil {
		last = err.Error()
	}
	if jobs := m.runningJobs(ctx); jobs != "" {
		last += "; systemd is still waiting for " + jobs
	}
	return fault.New(fault.Failure, "%s %s: %w; the unit is %s; its last log lines:\n%s", doing, unit, failure, last, m.Logs(ctx, unit, 15)).
		Hint("see `systemctl status " + unit + "` and `journalctl -u " + unit + "`")
}

// Unit returns a unit's state. A unit that systemd does not know has Load
// "not-found".
func (m Manager) Unit(ctx context.Context, unit string) (UnitState, error) {
	var s UnitState
	err := m.withSystemd(ctx, func(ctx context.Context, c Conn) error {
		p, err := c.GetAllPropertiesContext(ctx, unit)
		if err != nil {
			return fmt.Errorf("getting the state of %s from systemd: %w", unit, err)
		}
		s = UnitState{
			Load: property[string](p, "LoadState"), Active: property[string](p, "ActiveState"), Sub: property[string](p, "SubState"),
			File: property[string](p, "FragmentPath"), DropIns: property[[]string](p, "DropInPaths"), Type: property[string](p, "Type"), Result: property[string](p, "Result"),
			Enabled: property[string](p, "UnitFileState") == "enabled",
			Stale:   property[bool](p, "NeedDaemonReload"),
			MainPID: property[uint32](p, "MainPID"), Restarts: property[uint32](p, "NRestarts"),
			Invocation: hex.EncodeToString(property[[]byte](p, "InvocationID")),
			Exit:       unitExit(p),
		}
		if active := property[uint64](p, "ActiveEnterTimestamp"); active != 0 {
			s.Since = time.UnixMicro(int64(active))
		}
		return nil
	})
	return s, err
}

// unitExit reads how the main process ended, from the properties of a service.
func unitExit(p map[string]any) *UnitExit {
	finished := property[uint64](p, "ExecMainExitTimestamp")
	if finished == 0 {
		return nil
	}
	const exited = 1 // CLD_EXITED of waitid(2); others are signals
	return &UnitExit{
		Signal: property[int32](p, "ExecMainCode") != exited, Code: property[int32](p, "ExecMainStatus"),
		Started:  time.UnixMicro(int64(property[uint64](p, "ExecMainStartTimestamp"))),
		Finished: time.UnixMicro(int64(finished)),
	}
}

func property[T any](properties map[string]any, name string) T {
	value, _ := properties[name].(T)
	return value
}

// Logs returns the last lines of a unit's log, for a message. It never fails:
// instead of lines it may return why there are none.
func (m Manager) Logs(ctx context.Context, unit string, lines int) string {
	out, err := childprocess.Command(ctx, "journalctl", "--no-pager", "--quiet", "--output=short-iso",
		fmt.Sprintf("--lines=%d", lines), "--unit="+unit).Output()
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return "(this host has no journalctl)"
	case err != nil:
		return fmt.Sprintf("(reading the journal: %v)", err)
	case len(out) == 0:
		return "(none in the journal)"
	}
	return strings.TrimRight(string(out), "\n")
}

// LogTail returns the last lines that a unit's processes wrote to the journal in
// one run, or in any run if invocation is empty, without systemd's lines about
// the unit and without times, for the user of this host. It returns none if the journal cannot be read.
func (m Manager) LogTail(ctx context.Context, unit, invocation string, lines int) []string {
	args := []string{"--no-pager", "--quiet", "--output=cat", fmt.Sprintf("--lines=%d", lines), "_SYSTEMD_UNIT=" + unit}
	if invocation != "" {
		args = append(args, "_SYSTEMD_INVOCATION_ID="+invocation)
	}
	out, err := childprocess.Command(ctx, "journalctl", args...).Output()
	if err != nil || len(out) == 0 {
		return nil
	}
	return strings.Split(strings.TrimRight(string(out), "\n"), "\n")
}
