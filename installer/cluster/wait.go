package cluster

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"airlift/fault"
	"airlift/installer/timeline"

	"k8s.io/apimachinery/pkg/watch"
)

// Report is told, in a few words, what a wait sees, each time that changes.
type Report func(state string)

// How long to pause between looks, and before a failed watch is tried again.
const pollInterval = 200 * time.Millisecond

// With a watch that says when to look, looking unasked is only the safety net.
const watchedInterval = 2 * time.Second

// A wait is one bounded wait for something to become true.
type wait struct {
	what    string // completes "waiting for …"
	short   string // the same in the timeline, where it is long
	hint    string
	timeout time.Duration
	// interval is how long to pause without being woken, 0 for what is usual.
	interval time.Duration
	report   Report
	// epilogue, when set, adds to the timeout's message what only then is
	// worth finding out.
	epilogue func(context.Context) string
}

// until calls look until it says done, fails, or time is up: at once, on every
// wake, and after an interval without one. look's state is what a timeout
// reports as last seen; its error ends the wait.
func (w wait) until(parent context.Context, wake <-chan struct{}, look func(context.Context) (done bool, state string, err error)) error {
	ctx, cancel := context.WithTimeout(parent, w.timeout)
	defer cancel()
	span := timeline.Wait(parent, cmp.Or(w.short, w.what))
	defer span.End()
	span.Set("waiting for", w.what)
	ctx = timeline.In(ctx, span)
	interval := pollInterval
	if wake != nil {
		interval = watchedInterval
	}
	interval = cmp.Or(w.interval, interval)
	last := ""
	for {
		done, state, err := look(ctx)
		if err != nil {
			return fmt.Errorf("waiting for %s: %w", w.what, err)
		}
		if done {
			return nil
		}
		// A request that the deadline cut short saw nothing new.
		if ctx.Err() == nil && state != last {
			last = state
			span.Saw(state)
			if w.report != nil {
				w.report(state)
			}
		}
		select {
		case <-wake:
		case <-time.After(interval):
		case <-ctx.Done():
			if parent.Err() != nil {
				return fmt.Errorf("waiting for %s: %w", w.what, context.Cause(parent))
			}
			return w.timedOut(parent, last)
		}
	}
}

func (w wait) timedOut(ctx context.Context, last string) error {
	if last == "" {
		last = "nothing"
	}
	if w.epilogue != nil {
		last += "; " + w.epilogue(ctx)
	}
	return fault.New(fault.Failure, w.hint, "waiting for %s: gave up after %s; last seen: %s", w.what, w.timeout, last)
}

// watching keeps a watch open until ctx ends and wakes its reader on every
// event. What the event says does not matter: the reader looks for itself, so
// a lost event or connection costs time, never truth.
func watching(ctx context.Context, open func(context.Context) (watch.Interface, error)) <-chan struct{} {
	wake := make(chan struct{}, 1)
	go func() {
		for ctx.Err() == nil {
			if w, err := open(ctx); err == nil {
				for range w.ResultChan() {
					select {
					case wake <- struct{}{}:
					default: // one is waiting already
					}
				}
				w.Stop()
			}
			select {
			case <-time.After(pollInterval):
			case <-ctx.Done():
			}
		}
	}()
	return wake
}
