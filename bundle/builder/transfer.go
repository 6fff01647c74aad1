package builder

import (
	"sync"
	"sync/atomic"

	"airlift/bundle/events"
	"airlift/progress"
)

// A transfer is the download of a published file or of an image's layers. It counts bytes for
// the progress, the total and the events.
type transfer struct {
	item   *progress.Item
	sum    *atomic.Int64
	events *events.Stream
	begin  sync.Once

	about events.DownloadStarted
	known bool // the size was known before
	got   atomic.Int64
}

// transfer begins the download of kind. size is 0 if it is not known yet.
func (r *reporter) transfer(kind, name, source string, size int64) *transfer {
	return &transfer{item: r.Progress.Item(name, size), sum: &r.fetched, events: r.Events, known: size > 0,
		about: events.DownloadStarted{Kind: kind, Name: name, Source: source, Size: size}}
}

// started writes the event once.
func (t *transfer) started() { t.begin.Do(func() { t.events.DownloadStarted(t.about) }) }

// SetTotal sets the size, when the site reports it. That of an image is the sum of all its
// layers, and is known before.
func (t *transfer) SetTotal(n int64) {
	if t.known {
		return
	}
	t.item.SetTotal(n)
	t.begin.Do(func() {
		t.about.Size = n
		t.events.DownloadStarted(t.about)
	})
}

// Add counts bytes of the content, also those that an interrupted build downloaded.
func (t *transfer) Add(n int64) {
	t.got.Add(n)
	t.item.Add(n)
}

// Received counts bytes that were sent in this build.
func (t *transfer) Received(n int64) { t.sum.Add(n) }

// Done ends a download that was verified.
func (t *transfer) Done(digest, note string) {
	t.started()
	t.item.Done(note)
	t.finished(events.Network, digest, t.got.Load())
}

// Failed ends a download that failed.
func (t *transfer) Failed() { t.item.Failed() }

func (t *transfer) finished(from, digest string, size int64) {
	t.events.DownloadFinished(events.DownloadFinished{Kind: t.about.Kind, Name: t.about.Name, Source: t.about.Source, From: from, Size: size, Digest: digest})
}
