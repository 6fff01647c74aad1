package store

import (
	"context"
	"fmt"
	"sync"

	"golang.org/x/sync/semaphore"
)

const (
	// maxBehind bounds, in bytes, what has been taken from the stream and is
	// still in memory.
	maxBehind = 5 << 20

	// taskWeight is what each task counts for beside the bytes it holds: its
	// goroutine, its messages to containerd and the buffer it unpacks with.
	taskWeight = 64 << 10
)

// behind is what an importer does behind the stream's back: what containerd
// answers only when the disk has.
type behind struct {
	ctx    context.Context
	cancel context.CancelFunc
	memory *semaphore.Weighted

	tasks        sync.WaitGroup // that make something of what has passed
	preparations sync.WaitGroup // that may wait for what never comes

	mu  sync.Mutex
	err error // of the first task that failed; it ends the others
}

// newBehind returns one that works until ctx ends or it is stopped.
func newBehind(ctx context.Context) *behind {
	b := &behind{memory: semaphore.NewWeighted(maxBehind)}
	b.ctx, b.cancel = context.WithCancel(ctx)
	return b
}

// start begins a task that holds size bytes. It waits as long as the others
// hold too many, or ctx ends.
func (b *behind) start(ctx context.Context, size int64, task func(context.Context) error) error {
	size = min(size+taskWeight, maxBehind)
	if err := b.memory.Acquire(ctx, size); err != nil {
		return err
	}
	b.tasks.Go(func() {
		defer b.memory.Release(size)
		if err := task(b.ctx); err != nil {
			b.fail(err)
		}
	})
	return nil
}

// room waits until a task that holds size bytes could begin, so that they can be
// read into memory.
func (b *behind) room(ctx context.Context, size int64) error {
	size = min(size+taskWeight, maxBehind)
	if err := b.memory.Acquire(ctx, size); err != nil {
		return err
	}
	b.memory.Release(size)
	return nil
}

// prepare begins to do something ahead of time.
func (b *behind) prepare(task func(context.Context)) {
	b.preparations.Go(func() { task(b.ctx) })
}

func (b *behind) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil {
		b.err = err
	}
	b.cancel()
}

// failed returns the error of the first task that failed.
func (b *behind) failed() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

// finish waits for the tasks, not for what is being prepared.
func (b *behind) finish(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.tasks.Wait()
	}()
	select {
	case <-done:
		return b.failed()
	case <-ctx.Done():
		return fmt.Errorf("waiting for containerd to store the images: %w", ctx.Err())
	}
}

// stop ends everything and waits until it has ended.
func (b *behind) stop() {
	b.cancel()
	b.tasks.Wait()
	b.preparations.Wait()
}
