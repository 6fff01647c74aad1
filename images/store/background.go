package store

import (
	"context"
	"fmt"
	"sync"

	"golang.org/x/sync/semaphore"
)

const (
	// maxBackground limits the bytes that were read from the stream and are still in
	// memory.
	maxBackground = 5 << 20

	// taskWeight is the memory of a task in addition to its bytes: its goroutine, its
	// messages to containerd and its buffer.
	taskWeight = 64 << 10
)

// background runs an importer's tasks in parallel with the stream: tasks that wait for containerd
// or the disk.
type background struct {
	ctx    context.Context
	cancel context.CancelFunc
	memory *semaphore.Weighted

	tasks        sync.WaitGroup // which process received blobs
	preparations sync.WaitGroup // which may wait for a layer that never arrives

	mu  sync.Mutex
	err error // of the first failed task; it cancels the others
}

// newBackground returns a background that works until ctx is cancelled or stop is called.
func newBackground(ctx context.Context) *background {
	b := &background{memory: semaphore.NewWeighted(maxBackground)}
	b.ctx, b.cancel = context.WithCancel(ctx)
	return b
}

// start starts a task that holds size bytes of memory. It waits while the other tasks hold
// too many bytes.
func (b *background) start(ctx context.Context, size int64, task func(context.Context) error) error {
	size = min(size+taskWeight, maxBackground)
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

// room waits until a task with size bytes could start, so that the bytes can be read into
// memory.
func (b *background) room(ctx context.Context, size int64) error {
	size = min(size+taskWeight, maxBackground)
	if err := b.memory.Acquire(ctx, size); err != nil {
		return err
	}
	b.memory.Release(size)
	return nil
}

// prepare starts the preparation of a snapshot.
func (b *background) prepare(task func(context.Context)) {
	b.preparations.Go(func() { task(b.ctx) })
}

func (b *background) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil {
		b.err = err
	}
	b.cancel()
}

// failed returns the error of the first task that failed.
func (b *background) failed() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

// finish waits for the tasks, but not for the preparations.
func (b *background) finish(ctx context.Context) error {
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

// stop cancels everything and waits until it has ended.
func (b *background) stop() {
	b.cancel()
	b.tasks.Wait()
	b.preparations.Wait()
}
