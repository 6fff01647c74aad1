package run

import "time"

// PlanWithPatches is for tests of its shell script.
var PlanWithPatches = (*Host).planWithPatches

// SetSinceStart replaces the clock of this machine, until the returned function is called.
func SetSinceStart(clock func() time.Duration) func() {
	former := sinceStart
	sinceStart = clock
	return func() { sinceStart = former }
}
