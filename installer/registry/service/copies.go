package service

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"airlift/bundle"
	"airlift/installer/config"
	"airlift/installer/registry/store"
)

const (
	// copyInterval is how often the store is compared with the cluster's list, if nothing else changes.
	copyInterval = time.Minute
	// unlistedFor is how long a file stays that the cluster does not list: init and import place a file first, and list it
	// then.
	unlistedFor = time.Hour
)

// A copies keeps the store as the cluster lists it: it copies and repairs bundles from other control planes, and removes
// bundles that are not listed.
type copies struct {
	store   *store.Store
	catalog *catalog
	log     *slog.Logger
	// open opens a bundle that other control planes have. close ends its connections.
	open func(ctx context.Context, servers []netip.AddrPort, b config.KeptBundle) (f *bundle.File, close func(), err error)
	// wake has an element if there is something to do.
	wake chan struct{}

	mu      sync.Mutex
	servers []netip.AddrPort // other control planes
	listed  []config.KeptBundle
	known   bool // whether the API returned listed
	running *Copy
	failed  map[string]string // the errors of the last attempts by ID
}

// A Copy is a bundle that is being copied from another control plane.
type Copy struct {
	ID   string `json:"id"`
	Done int64  `json:"done"` // bytes
	Size int64  `json:"size"` // bytes
}

func newCopies(s *store.Store, log *slog.Logger) *copies {
	return &copies{store: s, log: log, wake: make(chan struct{}, 1), failed: map[string]string{}}
}

func (c *copies) wakeUp() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// useServers sets the other control planes.
func (c *copies) useServers(servers []netip.AddrPort) {
	c.mu.Lock()
	c.servers = servers
	c.mu.Unlock()
	c.wakeUp()
}

// useList sets what the cluster lists. Without a list, nothing is copied or removed.
func (c *copies) useList(listed []config.KeptBundle, known bool) {
	c.mu.Lock()
	c.listed, c.known = listed, known
	c.mu.Unlock()
	c.wakeUp()
}

// run works until ctx ends.
func (c *copies) run(ctx context.Context) error {
	tick := time.NewTicker(copyInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-c.wake:
		}
		c.work(ctx)
	}
}

// work copies what is missing, repairs what is damaged, and removes what is not listed, once.
func (c *copies) work(ctx context.Context) {
	c.mu.Lock()
	listed, known, servers := c.listed, c.known, c.servers
	c.mu.Unlock()
	if !known {
		return
	}
	have, problems := c.catalog.byID(), c.catalog.problems()
	failed := map[string]string{}
	for _, b := range listed {
		_, damaged := problems[b.ID]
		if have[b.ID] != nil && !damaged {
			continue
		}
		if err := c.obtain(ctx, servers, b, have[b.ID] != nil); err != nil && ctx.Err() == nil {
			c.log.Warn("copying a bundle from another control plane", "id", b.ID, "error", err)
			failed[b.ID] = err.Error()
		}
	}
	c.mu.Lock()
	c.failed = failed
	c.mu.Unlock()
	c.remove(listed, len(failed) == 0 && ctx.Err() == nil)
}

// obtain copies one bundle, or repairs the one that is in place.
func (c *copies) obtain(ctx context.Context, servers []netip.AddrPort, b config.KeptBundle, inPlace bool) error {
	if len(servers) == 0 {
		return fmt.Errorf("no other control plane is known")
	}
	f, close, err := c.open(ctx, servers, b)
	if err != nil {
		return err
	}
	defer close()
	if f.ID() != b.ID {
		return fmt.Errorf("the control plane sent the bundle %s", f.ID())
	}
	c.progress(&Copy{ID: b.ID, Size: b.Size})
	defer c.progress(nil)
	if inPlace {
		repaired, err := c.store.Repair(ctx, f)
		if err == nil {
			c.catalog.repaired(b.ID)
			c.log.Info("a bundle was repaired", "id", b.ID, "bytes", repaired)
		}
		return err
	}
	_, err = c.store.Keep(ctx, f, func(done int64) { c.progress(&Copy{ID: b.ID, Done: done, Size: b.Size}) })
	c.catalog.refresh()
	return err
}

func (c *copies) progress(now *Copy) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running = now
}

// remove removes files that the cluster does not list: complete ones only if all listed ones are in place, because a list
// that a user edited may name files that no control plane has.
func (c *copies) remove(listed []config.KeptBundle, inPlace bool) {
	items, err := c.store.List()
	if err != nil {
		c.log.Error("the kept bundles cannot be listed", "error", err)
		return
	}
	removed := false
	for _, item := range items {
		if item.Complete && !inPlace || time.Since(item.Placed) < unlistedFor || slices.ContainsFunc(listed, func(b config.KeptBundle) bool { return b.ID == item.ID }) {
			continue
		}
		if err := c.store.Remove(item.ID); err != nil {
			c.log.Error("a bundle that the cluster does not list cannot be removed", "id", item.ID, "error", err)
			continue
		}
		removed = true
		c.log.Info("a bundle was removed: the cluster does not list it any more", "id", item.ID)
	}
	if removed {
		c.catalog.refresh()
	}
}
