package daemon

import (
	"time"

	"golang.org/x/sys/unix"
)

// Now returns a time for deadlines: its difference to another one includes the time in which the host was suspended. time.Now does not:
// CLOCK_MONOTONIC stops then. It is not the time of day.
func Now() time.Time { return time.Now().Add(suspended()) }

// suspended returns for how long the host was suspended since it booted.
func suspended() time.Duration {
	var boot, monotonic unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &monotonic) != nil || unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot) != nil {
		return 0 // Linux has both
	}
	return time.Duration(boot.Nano() - monotonic.Nano())
}
