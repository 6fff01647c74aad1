package events

import (
	"sync"
	"sync/atomic"
)

// A Transfer is the download of a published file or of an image's layers. It counts bytes for the
// progress, the total and the events.
type Transfer struct {
	work  *Work
	sum   *atomic.Int64
	begin sync.Once

	about DownloadStarted
	known bool // the size was known before
	got   atomic.Int64
}

// Transfer begins a download. Its size is 0 if it is not known yet. sum counts what is received.
func (r Reporter) Transfer(about DownloadStarted, sum *atomic.Int64) *Transfer {
	return &Transfer{work: r.Work(about.Name, about.Size), sum: sum, known: about.Size > 0, about: about}
}

// Started reports the start once.
func (t *Transfer) Started() { t.begin.Do(func() { t.work.report.DownloadStarted(t.about) }) }

// SetTotal sets the size, when the site reports it. The size of an image is the sum of its layers
// and is known before the download.
func (t *Transfer) SetTotal(n int64) {
	if t.known {
		return
	}
	t.work.item.SetTotal(n)
	t.begin.Do(func() {
		t.about.Size = n
		t.work.report.DownloadStarted(t.about)
	})
}

// Add counts bytes of the content, including bytes that an interrupted build downloaded.
func (t *Transfer) Add(n int64) {
	t.got.Add(n)
	t.work.Add(n)
}

// Received counts bytes that were sent in this build.
func (t *Transfer) Received(n int64) { t.sum.Add(n) }

// Done ends a download that was verified.
func (t *Transfer) Done(digest, note string) {
	t.Started()
	a := t.about
	t.work.Done(note, DownloadFinished{Kind: a.Kind, Name: a.Name, Source: a.Source, From: Network, Size: t.got.Load(), Digest: digest})
}

// Failed ends a download that failed.
func (t *Transfer) Failed() { t.work.Failed() }
