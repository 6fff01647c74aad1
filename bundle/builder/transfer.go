package builder

import (
	"sync"
	"sync/atomic"

	"airlift/bundle/charts"
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
func (b *builder) transfer(kind, name, source string, size int64) *transfer {
	return &transfer{item: b.Progress.Item(name, size), sum: &b.fetched, events: b.Events, known: size > 0,
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

// Add counts bytes.
func (t *transfer) Add(n int64) {
	t.sum.Add(n)
	t.got.Add(n)
	t.item.Add(n)
}

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

// present reports content that does not have to be downloaded.
func (b *builder) present(kind, name, source, from string, size int64, digest, note string) {
	b.Progress.Item(name, size).Done(note)
	b.Events.DownloadFinished(events.DownloadFinished{Kind: kind, Name: name, Source: source, From: from, Size: size, Digest: digest})
}

// printWarning prints a warning that is not in the result.
func (b *builder) printWarning(text string) {
	if b.Events != nil {
		b.Events.Warning(text)
		return
	}
	b.Progress.Printf("warning: %s\n", text)
}

// watchCharts writes events for downloads of charts.
func (b *builder) watchCharts() {
	b.charts.Started = func(d charts.Download) {
		b.Events.DownloadStarted(events.DownloadStarted{Kind: events.Chart, Name: chartName(d), Source: d.Source})
	}
	b.charts.Finished = func(d charts.Download, size int64) {
		b.Events.DownloadFinished(events.DownloadFinished{Kind: events.Chart, Name: chartName(d), Source: d.Source, From: events.Network, Size: size, Digest: d.Digest})
	}
}

// chartName names a chart in events, before its version is known: "ingress-nginx 4.13.2".
func chartName(d charts.Download) string {
	name := d.Name
	if name == "" {
		name = d.Source // a registry's
	}
	return name + " " + d.Wanted
}
