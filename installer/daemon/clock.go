package daemon

import (
	"time"

	"golang.org/x/sys/unix"
)

// Now returns a time for deadlines: its difference to another one includes the time in which the host was suspended. time.Now does not:
// CLOCK_MONOTONIC stops then. It is not the time of day.
func Now() time.Time { return time.Now().Add(suspended()) }

// suspended returns for how long the host was suspended since it booted. It reads the clocks again if the process waited for a processor in
// between: that time must not be added.
func suspended() time.Duration {
	for {
		var before, boot, after unix.Timespec
		if unix.ClockGettime(unix.CLOCK_MONOTONIC, &before) != nil || unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot) != nil || unix.ClockGettime(unix.CLOCK_MONOTONIC, &after) != nil {
			return 0 // Linux has both
		}
		if after.Nano()-before.Nano() < int64(time.Millisecond) {
			return time.Duration(boot.Nano() - before.Nano())
		}
	}
}
