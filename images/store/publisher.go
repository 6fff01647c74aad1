package store

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"airlift/bundle"
)

// A publisher makes usable images, in the background, of parts that are all
// there: it waits until they are on the disk, and tells containerd. Images that
// become complete while it waits share the next wait.
type publisher struct {
	ctx     context.Context
	cancel  context.CancelFunc
	store   *Store
	onImage func(context.Context, bundle.Image) error // may be nil

	mu       sync.Mutex
	images   []bundle.Image // complete, not taken up yet
	unsynced string         // a folder with layers that may not be on the disk yet
	busy     bool           // a goroutine is publishing
	idle     chan struct{}  // closed when it has ended; nil if there never was one
	err      error          // of the first image that failed; none follow it
}

// newPublisher returns a publisher that works until ctx ends or it is stopped.
func newPublisher(ctx context.Context, s *Store, onImage func(context.Context, bundle.Image) error) *publisher {
	p := &publisher{store: s, onImage: onImage}
	p.ctx, p.cancel = context.WithCancel(ctx)
	return p
}

// add takes up an image. The folder names a file system where there is
// something to be synced first; "" if there is nothing.
func (p *publisher) add(img bundle.Image, unsynced string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.images = append(p.images, img)
	if unsynced != "" {
		p.unsynced = unsynced
	}
	if !p.busy {
		p.busy, p.idle = true, make(chan struct{})
		go p.run(p.idle)
	}
}

// run publishes until there is nothing left to be published.
func (p *publisher) run(idle chan struct{}) {
	defer close(idle)
	for {
		images, unsynced := p.take()
		if len(images) == 0 {
			return
		}
		if err := p.publish(images, unsynced); err != nil {
			p.mu.Lock()
			p.err = err
			p.mu.Unlock()
		}
	}
}

// take returns what is to be done next, and marks the publisher as no longer
// busy if that is nothing.
func (p *publisher) take() (images []bundle.Image, unsynced string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		images, unsynced = p.images, p.unsynced
	}
	p.images, p.unsynced = nil, ""
	p.busy = len(images) > 0
	return images, unsynced
}

// publish makes images usable. containerd's database is on the disk at once, so
// without the sync a power cut could leave an image that is recorded as
// complete and has empty files.
func (p *publisher) publish(images []bundle.Image, unsynced string) error {
	if unsynced != "" {
		if err := syncFS(unsynced); err != nil {
			return fmt.Errorf("importing %s: %w", images[0].Reference, err)
		}
	}
	for _, img := range images {
		if err := p.store.publish(p.ctx, img); err != nil {
			return fmt.Errorf("importing %s: %w", img.Reference, err)
		}
		if p.onImage == nil {
			continue
		}
		if err := p.onImage(p.ctx, img); err != nil {
			return err
		}
	}
	return nil
}

// failed returns the error of the first image that failed.
func (p *publisher) failed() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// finish waits until everything that was added is usable, or has failed.
func (p *publisher) finish(ctx context.Context) error {
	p.mu.Lock()
	idle := p.idle
	p.mu.Unlock()
	if idle != nil {
		select {
		case <-idle:
		case <-ctx.Done():
			return fmt.Errorf("waiting for the images to be usable: %w", ctx.Err())
		}
	}
	return p.failed()
}

// errStopped is why nothing is published after stop.
var errStopped = errors.New("the import was closed")

// stop ends publishing and waits for what is under way.
func (p *publisher) stop() {
	p.cancel()
	p.mu.Lock()
	if p.err == nil {
		p.err = errStopped
	}
	idle := p.idle
	p.mu.Unlock()
	if idle != nil {
		<-idle
	}
}
