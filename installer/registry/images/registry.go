// Package images is the pull side of OCI distribution for the images of bundles. Names, tags and digests are the ones of
// the upstream registries.
package images

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"airlift/bundle"
	"airlift/bundle/blobs/ondemand"
)

var _ http.Handler = (*Registry)(nil)

// maxStreams limits the contents that are sent at a time, because each needs buffers of its own. containerd opens three
// streams per node.
const maxStreams = 384

// patience is how long a request waits until its content can be sent. containerd waits 30 s for a header.
const patience = 20 * time.Second

// Options are the options of a Registry.
type Options struct {
	// Cache is a directory for documents and blobs, which the Registry creates. No other process may use it.
	Cache string
	// Limit is the size in bytes up to which Cache keeps layers.
	Limit int64
	Log   *slog.Logger
}

// A Registry serves the images of bundles.
type Registry struct {
	store   *ondemand.Store
	log     *slog.Logger
	streams chan struct{} // has an element for each content that is being sent
	catalog atomic.Pointer[catalog]
	setting sync.Mutex
}

// New returns a Registry without images. The caller must Close it.
func New(o Options) *Registry {
	r := &Registry{
		store:   ondemand.New(ondemand.Options{Dir: o.Cache, Limit: o.Limit, Log: o.Log}),
		log:     o.Log,
		streams: make(chan struct{}, maxStreams),
	}
	r.catalog.Store(&catalog{})
	return r
}

// Set serves the images of these bundles instead of the earlier ones. The first bundle decides if two have one tag
// with two digests. The layers of an additional bundle that are only in its base are served if the base is one of the
// files. With an error, the other bundles are served.
//
// After Set, bundles that are not in the list are not read any more, and may be closed. Clients that waited for one
// lose their connections.
func (r *Registry) Set(files []*bundle.File) error {
	r.setting.Lock()
	defer r.setting.Unlock()
	if err := r.store.Open(); err != nil {
		return err
	}
	c, err := newCatalog(context.Background(), r.store, files)
	r.catalog.Store(c)
	r.store.Retain(files, c.documents)
	return err
}

// Served lists the images, by reference. An image whose tag another bundle decides is left out.
func (r *Registry) Served() []Served { return append([]Served{}, r.catalog.Load().served...) }

// Close ends all work. Requests that are not answered yet fail.
func (r *Registry) Close() { r.store.Close() }
