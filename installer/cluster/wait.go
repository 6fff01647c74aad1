package cluster

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"airlift/fault"
	"airlift/installer/timeline"
)

// Report is called with a short state each time that what a wait sees changes.
type Report func(state string)

// pollInterval is the pause between checks, and before a failed watch is reopened.
const pollInterval = 200 * time.Millisecond

// watchedInterval is the pause between checks when a watch triggers them too.
const watchedInterval = 2 * time.Second

// A wait is one bounded wait for something to become true.
type wait struct {
	what    string // completes "waiting for …"
	short   string // a shorter text for the timeline
	hint    string
	timeout time.Duration
	// interval is the pause between checks; 0 means the default.
	interval time.Duration
	report   Report
	// epilogue, if set, adds a diagnosis to the message of a timeout.
	epilogue func(context.Context) string
}

// until calls look until it is done, fails, or the timeout has passed: at once,
// on every wake, and after each interval without a wake. A timeout reports
// look's last state; an error of look ends the wait.
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
		// A request that the deadline ended has no new state.
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
// event. The reader ignores the event's content and reads the state itself, so
// a lost event or connection causes only a delay.
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
