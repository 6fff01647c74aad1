package installer

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"airlift/bundle"
	"airlift/fault"
	"airlift/installer/preflight"
	"airlift/installer/timeline"
)

// A fileCheck compares the whole bundle file with its digests, in the background
// while the host is checked. Nothing on the host is changed before it has ended.
// What it reads is in the page cache afterwards, so that reading the file again
// for its content costs little, also from a USB drive.
type fileCheck struct {
	checked, size atomic.Int64 // bytes
	done          chan struct{}
	err           error // after done
}

// CheckFile starts the check of the bundle file. Preflight, and the first step
// that uses the file, wait for it. Close ends it.
func (n *Node) CheckFile(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	c := &fileCheck{done: make(chan struct{})}
	n.file, n.stopFileCheck = c, cancel
	c.size.Store(n.Bundle.CheckSize())
	go c.run(ctx, n.Bundle)
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

// fileChecked waits for the check and returns its result, nil without one.
func (n *Node) fileChecked(ctx context.Context) error {
	c := n.file
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
	n.Console.Debug(1, "comparing the file with its digests")
	defer n.Console.Bytes("checking this file", &c.checked, &c.size)()
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// addFileCheck adds the result of the file's check to what preflight has found,
// report and err. A damaged file decides about the exit code.
func (n *Node) addFileCheck(ctx context.Context, report preflight.Report, err error) (preflight.Report, error) {
	damaged := n.fileChecked(ctx)
	if damaged == nil || ctx.Err() != nil {
		return report, errors.Join(err, ctx.Err())
	}
	report.Errors = append(report.Errors, preflight.Problem{Name: "BundleFile", Message: damaged.Error(), Fix: fault.Hint(damaged)})
	if err != nil {
		damaged = fault.Wrap(fmt.Errorf("%w\n%w", damaged, err), fault.Bundle, fault.Hint(damaged))
	}
	return report, damaged
}

// RunPhase runs one of the steps alone, after the check of the file.
func (n *Node) RunPhase(ctx context.Context, steps []Step, name string) error {
	if err := n.fileChecked(ctx); err != nil {
		return err
	}
	return RunPhase(ctx, n.Console, steps, name)
}
