package wait

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"airlift/installer/timeline"
	"airlift/internal/fault"
)

// Report is called with a short state each time that what a wait sees changes.
type Report func(state string)

// pollInterval is the pause between checks, and before a failed watch is reopened.
const pollInterval = 200 * time.Millisecond

// After each check a wait pauses restFactor times as long as the check took, but at most maxRest.
// On a slow host the checks would otherwise take processor time from the process that they wait for.
const (
	restFactor = 4
	maxRest    = 5 * time.Second
)

// watchedInterval is the pause between checks when a watch triggers them too.
const watchedInterval = 2 * time.Second

// progressFactor limits a wait that makes progress, in timeouts.
const progressFactor = 3

// epilogueTimeout limits the diagnosis after a wait that failed.
const epilogueTimeout = 10 * time.Second

// A For is one bounded wait for something to become true.
type For struct {
	What  string // completes "waiting for …"
	Short string // a shorter text for the timeline
	Hint  string
	// Timeout limits the time without progress, which is a state that was not seen
	// before: a slow host gets more time as long as something happens. The whole
	// wait ends after progressFactor times as long.
	Timeout time.Duration
	// Interval is the pause between checks; 0 means the default.
	Interval time.Duration
	// Attempt limits the first check; 0 means no limit. Each check that runs out
	// of time doubles it: a slow host answers later, and a server that accepts a
	// connection and never answers must not use up the whole time.
	Attempt time.Duration
	Report  Report
	// Epilogue, if set, adds a diagnosis to the message of a timeout.
	Epilogue func(context.Context) string
}

// numbers are ports, times and counters: a state that differs only in these is no
// progress.
var numbers = regexp.MustCompile(`[0-9]+`)

// WithoutNumbers returns a state in which all numbers are 0.
func WithoutNumbers(state string) string { return numbers.ReplaceAllString(state, "0") }

// Until calls look until it is done, fails, or the timeout has passed without
// progress: at once, on every wake, and after each interval without a wake, with
// a pause after each. A timeout reports look's last state; an error of look ends the wait.
func (w For) Until(parent context.Context, wake <-chan struct{}, look func(context.Context) (done bool, state string, err error)) error {
	ctx, giveUp := context.WithCancel(parent)
	defer giveUp()
	began := time.Now()
	timer := time.AfterFunc(w.Timeout, giveUp)
	defer timer.Stop()
	span := timeline.Wait(parent, cmp.Or(w.Short, w.What))
	defer span.End()
	span.Set("waiting for", w.What)
	ctx = timeline.In(ctx, span)
	interval := pollInterval
	if wake != nil {
		interval = watchedInterval
	}
	interval = cmp.Or(w.Interval, interval)
	last, limit := "", cmp.Or(w.Attempt, w.Timeout)
	seen := map[string]bool{}
	for {
		looked := time.Now()
		attempt, cancel := context.WithTimeout(ctx, limit)
		done, state, err := look(attempt)
		if attempt.Err() != nil {
			limit *= 2
			if parent.Err() == nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
				err = nil // this wait ended the request
			}
		}
		cancel()
		if err != nil {
			return fmt.Errorf("waiting for %s: %w", w.What, err)
		}
		if done {
			return nil
		}
		// A request that giveUp ended has no new state, but the first one may have been repeated until then.
		if (ctx.Err() == nil || last == "") && state != last {
			last = state
			if s := WithoutNumbers(state); !seen[s] {
				seen[s] = true
				timer.Reset(min(w.Timeout, time.Until(began.Add(progressFactor*w.Timeout))))
			}
			span.Saw(state)
			if w.Report != nil {
				w.Report(state)
			}
		}
		rest := min(restFactor*time.Since(looked), maxRest)
		if pause(ctx, nil, rest) && pause(ctx, wake, interval-rest) {
			continue
		}
		if parent.Err() != nil {
			return fmt.Errorf("waiting for %s: %w", w.What, context.Cause(parent))
		}
		return w.timedOut(parent, time.Since(began), last)
	}
}

// pause waits for a time or a wake. It reports false if ctx ended.
func pause(ctx context.Context, wake <-chan struct{}, d time.Duration) bool {
	select {
	case <-wake:
	case <-time.After(d):
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

func (w For) timedOut(ctx context.Context, after time.Duration, last string) error {
	last = cmp.Or(last, "nothing")
	if w.Epilogue != nil {
		ctx, cancel := context.WithTimeout(ctx, epilogueTimeout)
		defer cancel()
		last += "; " + w.Epilogue(ctx)
	}
	return fault.New(fault.Failure, "waiting for %s: gave up after %s; last seen: %s", w.What, after.Round(time.Second), last).Hint(w.Hint)
}

// Watch keeps a watch open until ctx ends and wakes its reader on every
// event. The reader ignores the event's content and reads the state itself, so
// a lost event or connection causes only a delay.
func Watch(ctx context.Context, open func(context.Context) (watch.Interface, error)) <-chan struct{} {
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

// A Limit limits a wait without progress, and reports what it sees.
type Limit struct {
	Timeout time.Duration
	Report  Report
}
