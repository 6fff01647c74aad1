package store

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"airlift/bundle"
)

// A publisher makes complete images usable, in the background: it waits until they are on
// the disk and then records them in containerd. Images that become complete during a sync
// share the next one.
type publisher struct {
	ctx     context.Context
	cancel  context.CancelFunc
	store   *Store
	onImage func(context.Context, bundle.Image) error // may be nil

	mu       sync.Mutex
	images   []bundle.Image // complete and waiting
	unsynced string         // a directory with layers that may not be on the disk yet
	busy     bool           // a goroutine is publishing
	idle     chan struct{}  // closed when that goroutine has ended; nil if there was none
	err      error          // of the first failed image; no image follows it
}

// newPublisher returns a publisher that works until ctx is cancelled or stop is called.
func newPublisher(ctx context.Context, s *Store, onImage func(context.Context, bundle.Image) error) *publisher {
	p := &publisher{store: s, onImage: onImage}
	p.ctx, p.cancel = context.WithCancel(ctx)
	return p
}

// add adds an image. unsynced is a directory on the file system to sync first, or "".
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

// run publishes until no image is waiting.
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

// take returns the next images to publish. If there are none, it marks the publisher as
// idle.
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

// publish makes images usable. containerd syncs its database at once. Without this sync, a
// power cut could leave an image that is recorded as complete but has empty files.
func (p *publisher) publish(images []bundle.Image, unsynced string) error {
	if unsynced != "" {
		if err := syncFS(unsynced); err != nil {
			return fmt.Errorf("importing %s: %w", images[0].Reference, err)
		}
	}
	for _, img := range images {
		if err := p.store.publication().publish(p.ctx, img); err != nil {
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

// finish waits until all added images are usable or failed.
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

// errStopped is the error of images that are added after stop.
var errStopped = errors.New("the import was closed")

// stop ends publishing and waits until the current images are done.
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
