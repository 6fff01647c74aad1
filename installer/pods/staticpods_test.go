package pods

import (
	"testing"
	"time"

	"airlift/images/store"
)

// TestStartedBefore: only a container that was started before the file was written still uses the
// old content.
func TestStartedBefore(t *testing.T) {
	now := time.Now()
	at := func(d time.Duration, exited bool) store.Container {
		return store.Container{Created: now.Add(d), Exited: exited}
	}
	for name, c := range map[string]struct {
		list    []store.Container
		written time.Duration
		want    bool
	}{
		"older":               {[]store.Container{at(-2*time.Hour, false)}, -time.Hour, true},
		"newer":               {[]store.Container{at(-2*time.Hour, true), at(-time.Minute, false)}, -time.Hour, false},
		"ended":               {[]store.Container{at(-2*time.Hour, true)}, -time.Hour, false},
		"none":                {nil, -time.Hour, false},
		"the clock went back": {[]store.Container{at(-2*time.Hour, false)}, time.Hour, false},
	} {
		if got := startedBefore(c.list, now.Add(c.written), now); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
