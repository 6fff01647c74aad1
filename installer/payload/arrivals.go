package payload

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"airlift/installer/timeline"
)

// arrivals records which entries and images of the bundle are in place on the
// host. Steps wait for them by name.
type arrivals struct {
	Total, Moved atomic.Int64 // bytes to unpack, bytes unpacked
	Changed      atomic.Int64 // number of binaries and images that were new

	mu      sync.Mutex
	waiting map[string]chan struct{} // closed when the entry or image is in place

	Done chan struct{} // closed when nothing more arrives
	err  error         // why it ended; valid after Done is closed
}

func newArrivals() *arrivals {
	return &arrivals{waiting: map[string]chan struct{}{}, Done: make(chan struct{})}
}

// expect records that an entry or an image will arrive.
func (a *arrivals) expect(name string) { a.waiting[name] = make(chan struct{}) }

// announce ends the waits for an entry or an image.
func (a *arrivals) announce(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	select {
	case <-a.waiting[name]:
	default:
		close(a.waiting[name])
	}
}

// end ends all waits. err is the error that ended the stream, if any.
func (a *arrivals) end(err error) {
	a.err = err
	close(a.Done)
}

// Wait waits until every name (an entry or an image reference) is on the host.
// It returns an error if the stream ends before that.
func (a *arrivals) Wait(ctx context.Context, names ...string) error {
	for _, name := range names {
		if err := a.waitFor(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

func (a *arrivals) waitFor(ctx context.Context, name string) error {
	a.mu.Lock()
	ch := a.waiting[name]
	a.mu.Unlock()
	if ch == nil {
		return fmt.Errorf("waiting for %s: the bundle does not contain it", name)
	}
	select {
	case <-ch:
		return nil
	default:
	}
	defer timeline.Wait(ctx, "bundle", shortName(name)).End()
	select {
	case <-ch:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for %s: %w", name, ctx.Err())
	case <-a.Done:
	}
	select {
	case <-ch: // the entry arrived just before the stream ended
		return nil
	default:
	}
	if a.err != nil {
		return a.err
	}
	return fmt.Errorf("waiting for %s: the bundle ended without it", name)
}

// Finish waits for the end of the stream and returns its error.
func (a *arrivals) Finish(ctx context.Context) error {
	defer timeline.Wait(ctx, "bundle", "remaining entries").End()
	select {
	case <-a.Done:
		return a.err
	case <-ctx.Done():
		return ctx.Err()
	}
}
