package systemd_test

import (
	"errors"
	"testing"
	"time"

	"airlift/installer/host"
	"airlift/scripts/fixtures/testhost"
)

// TestReread counts how often systemd reads the files of all units: that takes GPUs from running containers.
func TestReread(t *testing.T) {
	h := testhost.Open(t, t.TempDir())
	units := testhost.NewUnits(h, time.Now().Add(-time.Hour))
	var told []string
	h.Units.Reloaded = func(unit string) { told = append(told, unit) }
	reloads := 0
	expect := func(what string, more int, err error) {
		t.Helper()
		if reloads += more; err != nil || units.Reloads != reloads || len(told) != reloads {
			t.Errorf("%s: systemd has reloaded %d times, want %d; told of %q; %v", what, units.Reloads, reloads, told, err)
		}
	}
	write := func(file, text string) {
		t.Helper()
		if _, err := h.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s, ctx := h.Systemd(), t.Context()
	const unit = "airlift-x.service"
	expect("no file", 0, s.Reread(ctx, unit))
	write("/etc/systemd/system/"+unit, "a")
	expect("the file of another unit", 0, s.Reread(ctx, "airlift-y.service"))
	expect("a new file", 1, s.Enable(ctx, unit))
	expect("enabled again", 0, s.Enable(ctx, unit))
	write("/etc/systemd/system/"+unit, "a")
	expect("the same content", 0, s.Enable(ctx, unit))
	write("/etc/systemd/system/"+unit+".d/10.conf", "b")
	expect("a drop-in", 1, s.Reread(ctx, "airlift-y.service", unit))
	write("/etc/airlift-x.yaml", "c")
	expect("another file", 0, s.Reread(ctx, unit))
	expect("a removed file", 1, errors.Join(h.Remove("/etc/systemd/system/"+unit), s.Reread(ctx, unit)))
	units.Stale = true // a run that was killed has written the file
	expect("after an interruption", 1, s.Reread(ctx, unit))

	write("/etc/systemd/system/"+unit, "d")
	units.Reloading = func() { // by another part of the same run
		units.Reloading = nil
		write("/etc/systemd/system/airlift-y.service", "e")
	}
	expect("a file", 1, s.Reread(ctx, unit))
	expect("a file that changed while systemd read others", 1, s.Reread(ctx, "airlift-y.service"))

	timer := host.Timer{Name: "airlift-t", About: "test", Schedule: "OnCalendar=daily", Command: "version"}
	h.Installer = "/proc/self/exe"
	_, err := h.EnsureTimer(ctx, timer)
	expect("a timer", 1, err)
	_, err = h.EnsureTimer(ctx, timer)
	expect("the same timer", 0, err)
	timer.Schedule = "OnCalendar=hourly"
	_, err = h.EnsureTimer(ctx, timer)
	expect("another schedule", 1, err)
}
