package installer

import (
	"context"
	"sync/atomic"
	"time"

	"airlift/bundle"
	"airlift/installer/timeline"
)

// A fileCheck compares the whole bundle file with its digests, in the background
// while the host is checked. Nothing on the host is changed before it has ended.
// What it reads is in the page cache afterwards, so that reading the file again
// for its content costs little, also from a USB drive.
type fileCheck struct {
	checked, size atomic.Int64 // bytes
	done          chan struct{}
	stop          context.CancelFunc
	err           error // after done
}

// CheckFile starts the check of the bundle file. Preflight, and the first step
// that uses the file, wait for it. Close ends it.
func (b *Bundle) CheckFile(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	c := &fileCheck{done: make(chan struct{}), stop: cancel}
	b.check = c
	c.size.Store(b.file.CheckSize())
	go c.run(ctx, b.file)
}

// Close ends the check of the file and waits until it has ended.
func (b *Bundle) Close() {
	if b.check != nil {
		b.check.stop()
		<-b.check.done
	}
}

func (c *fileCheck) run(ctx context.Context, f *bundle.File) {
	defer close(c.done)
	ctx, span := timeline.Start(ctx, timeline.Bundle, "file-check")
	defer span.End()
	c.err = f.Check(ctx, &c.checked)
	span.Set("bytes", c.checked.Load())
}

// barDelay is how long a check may take before a bar shows how far it is: on a
// disk it takes a fraction of a second.
const barDelay = 500 * time.Millisecond

// checked waits for the check and returns its result, nil without one.
func (b *Bundle) checked(ctx context.Context, console *Console) error {
	c := b.check
	if c == nil {
		return nil
	}
	defer timeline.Wait(ctx, "bundle", "file-check").End()
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(barDelay):
	}
	console.Debug(1, "comparing the file with its digests")
	defer console.Bytes("checking this file", &c.checked, &c.size)()
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		return ctx.Err()
	}
}
