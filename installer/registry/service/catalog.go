package service

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"airlift/bundle"
	"airlift/installer/config"
	"airlift/installer/registry"
	"airlift/installer/registry/store"
)

// A catalog has the open files of the store, in order of precedence.
type catalog struct {
	store  *store.Store
	images registryAPI
	log    *slog.Logger
	// wake is called when a file turned out to be damaged.
	wake func()

	// changed has an element if images serves other files than those that are open.
	changed chan struct{}
	// opened is set when files are served, and published when images serves theirs: that may take minutes.
	opened, published atomic.Bool

	refreshing sync.Mutex // held while files are opened

	mu     sync.Mutex
	order  []config.KeptBundle // of the cluster
	files  []*entry
	broken map[string]string // files that cannot be opened: the errors by ID
}

// An entry is an open file.
type entry struct {
	kept    *store.Kept
	about   config.KeptBundle
	placed  time.Time
	damaged error // why the file needs a repair; guarded by the catalog's mu
}

func newCatalog(s *store.Store, images registryAPI, log *slog.Logger, wake func()) *catalog {
	return &catalog{store: s, images: images, log: log, wake: wake, changed: make(chan struct{}, 1), broken: map[string]string{}}
}

// refresh opens files that were placed in the store, and leaves out files that are gone. A request may still read a file
// that was left out, so nobody closes it: the runtime does so when nothing refers to it any more.
func (c *catalog) refresh() {
	c.refreshing.Lock()
	defer c.refreshing.Unlock()
	items, err := c.store.List()
	if err != nil {
		c.log.Error("the kept bundles cannot be listed", "error", err)
		return
	}
	have, next, changed := c.byID(), []*entry{}, false
	for _, item := range items {
		e := have[item.ID]
		switch {
		case !item.Complete:
			continue
		case e != nil && c.store.Current(e.kept):
		default:
			if e = c.open(item); e == nil {
				continue
			}
			changed = true
		}
		next = append(next, e)
	}
	if changed || len(next) != len(have) || !c.opened.Load() {
		c.set(next)
	}
}

// open opens a file, and describes it; nil if it cannot be used.
func (c *catalog) open(item store.Item) *entry {
	e := &entry{placed: item.Placed}
	var err error
	if e.kept, err = c.store.Open(item.ID, func(err error) { c.isDamaged(e, err) }); err == nil {
		var m *bundle.Manifest
		if m, err = e.kept.File.Manifest(); err == nil {
			e.about = registry.Describe(e.kept.File, m)
		}
	}
	c.mu.Lock()
	former := c.broken[item.ID]
	delete(c.broken, item.ID)
	if err != nil {
		c.broken[item.ID] = err.Error()
	}
	c.mu.Unlock()
	switch {
	case err == nil:
		c.log.Info("serving a bundle", "id", item.ID, "kubernetes", e.about.KubernetesVersion, "bytes", e.about.Size)
		return e
	case former != err.Error():
		c.log.Error("a kept bundle cannot be used", "id", item.ID, "error", err)
		c.wake()
	}
	return nil
}

func (c *catalog) isDamaged(e *entry, err error) {
	c.mu.Lock()
	first := e.damaged == nil
	e.damaged = err
	c.mu.Unlock()
	if first {
		c.log.Error("a kept bundle is damaged: it is repaired from another control plane", "error", err)
		c.wake()
	}
}

func (c *catalog) byID() map[string]*entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	have := map[string]*entry{}
	for _, e := range c.files {
		have[e.about.ID] = e
	}
	return have
}

// set makes files the open ones, in the order of the cluster, and then the newest first.
func (c *catalog) set(files []*entry) {
	c.mu.Lock()
	rank := map[string]int{}
	for n, b := range c.order {
		rank[b.ID] = n - len(c.order)
	}
	slices.SortFunc(files, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(rank[a.about.ID], rank[b.about.ID]), b.placed.Compare(a.placed), cmp.Compare(a.about.ID, b.about.ID))
	})
	c.files = files
	c.mu.Unlock()
	c.opened.Store(true)
	c.change()
}

// change lets images read the open files again.
func (c *catalog) change() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// publishAgain is after which time images reads the open files again, if it could not serve all of them: the disk may have
// been full.
const publishAgain = 5 * time.Minute

// publish lets images serve the open files, now and after each change, until ctx ends.
func (c *catalog) publish(ctx context.Context) error {
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.changed:
		case <-again:
		}
		c.mu.Lock()
		open := make([]*bundle.File, 0, len(c.files))
		for _, e := range c.files {
			open = append(open, e.kept.File)
		}
		c.mu.Unlock()
		again = nil
		if err := c.images.Set(open); err != nil {
			c.log.Error("not all images can be served", "error", err)
			again = time.After(publishAgain)
		}
		c.published.Store(true)
	}
}

// use sets the order of the cluster.
func (c *catalog) use(order []config.KeptBundle) {
	c.refreshing.Lock()
	defer c.refreshing.Unlock()
	c.mu.Lock()
	same := reflect.DeepEqual(order, c.order)
	c.order = order
	files := slices.Clone(c.files)
	c.mu.Unlock()
	if !same {
		c.set(files)
	}
}

// find returns the file with an ID, and its size in bytes; nil if there is none.
func (c *catalog) find(id string) (*store.Kept, int64) {
	if e := c.byID()[id]; e != nil {
		return e.kept, e.about.Size
	}
	return nil, 0
}

func (c *catalog) bundles() []config.KeptBundle {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := make([]config.KeptBundle, 0, len(c.files))
	for _, e := range c.files {
		list = append(list, e.about)
	}
	return list
}

// problems returns why files need a repair or cannot be used, by ID.
func (c *catalog) problems() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := maps.Clone(c.broken)
	for _, e := range c.files {
		if e.damaged != nil {
			list[e.about.ID] = e.damaged.Error()
		}
	}
	return list
}

// repaired forgets that a file was damaged. images may not have been able to read it.
func (c *catalog) repaired(id string) {
	if e := c.byID()[id]; e != nil {
		c.mu.Lock()
		e.damaged = nil
		c.mu.Unlock()
		c.change()
	}
}
