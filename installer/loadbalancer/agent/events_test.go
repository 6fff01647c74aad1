package agent

import (
	"testing"
	"time"
)

// A warning that holds on is one Event. It is another one when it did not hold for a while, or after a long time.
func TestWarningAgain(t *testing.T) {
	e := newEvents(nil, nil)
	written := func(want int) {
		t.Helper()
		e.warn(reference("Service", "default", "web", "1"), "NoAddress", "no free address")
		if len(e.queue) != want {
			t.Errorf("%d Events, want %d", len(e.queue), want)
		}
	}
	pass := func(sinceHeld, sinceWritten time.Duration) {
		for _, w := range e.last {
			w.held, w.at = w.held.Add(-sinceHeld), w.at.Add(-sinceWritten)
		}
	}
	written(1)
	written(1)
	pass(again/2, again/2)
	written(1)
	pass(again, again)
	written(2)
	pass(0, repeat)
	written(3)
}
