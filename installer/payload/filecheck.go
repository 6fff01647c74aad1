package payload

import (
	"context"
	"sync/atomic"
	"time"

	"airlift/bundle"
	"airlift/installer/timeline"
	"airlift/installer/workflow"
)

// A fileCheck verifies the digests of the whole bundle file in the background,
// while preflight checks the host. Nothing on the host changes before it ends.
// Afterwards the file is in the page cache, so the second read is fast, also
// from a USB drive.
type fileCheck struct {
	checked, size atomic.Int64 // bytes
	done          chan struct{}
	stop          context.CancelFunc
	err           error // valid after done is closed
}

// startFileCheck starts the check of a bundle file.
func startFileCheck(ctx context.Context, f *bundle.File) *fileCheck {
	ctx, cancel := context.WithCancel(ctx)
	c := &fileCheck{done: make(chan struct{}), stop: cancel}
	c.size.Store(f.CheckSize())
	go c.run(ctx, f)
	return c
}

// close ends the check and waits until it has ended.
func (c *fileCheck) close() {
	c.stop()
	<-c.done
}

func (c *fileCheck) run(ctx context.Context, f *bundle.File) {
	defer close(c.done)
	ctx, span := timeline.Start(ctx, timeline.Bundle, "file-check")
	defer span.End()
	c.err = f.Check(ctx, &c.checked)
	span.Set("bytes", c.checked.Load())
}

// barDelay is the time before a progress bar appears. From a disk, the check
// takes a fraction of a second.
const barDelay = 500 * time.Millisecond

// wait waits for the check and returns its result.
func (c *fileCheck) wait(ctx context.Context, console *workflow.Console) error {
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
