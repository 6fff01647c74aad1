package events

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"airlift/internal/progress"
)

// A Reporter reports to one of two sinks: progress as text, or a stream of events. Each method reports
// one thing; what a sink does not show, it leaves out. Several goroutines may use it. The zero Reporter
// reports nothing.
type Reporter struct {
	text     *progress.Display // nil shows nothing
	stream   *stream           // nil writes nothing
	platform string
}

type stream struct {
	mu  sync.Mutex
	w   io.Writer
	err error
	now func() time.Time
}

// Text returns a reporter that shows progress on w.
func Text(w io.Writer) Reporter { return Reporter{text: progress.New(w)} }

// JSON returns a reporter that writes events to w.
func JSON(w io.Writer) Reporter { return Reporter{stream: &stream{w: w, now: time.Now}} }

// IsJSON reports whether the reporter writes events.
func (r Reporter) IsJSON() bool { return r.stream != nil }

// On returns the same reporter for one platform.
func (r Reporter) On(platform string) Reporter { return Reporter{r.text, r.stream, platform} }

// Close removes the progress from a terminal.
func (r Reporter) Close() { r.text.Close() }

// Err returns the first error of writing events.
func (r Reporter) Err() error {
	if r.stream == nil {
		return nil
	}
	r.stream.mu.Lock()
	defer r.stream.mu.Unlock()
	return r.stream.err
}

// Send writes an event to a stream. It sets the head of e.
func (r Reporter) Send(name string, e Event) {
	s := r.stream
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return
	}
	*e.head() = Head{name, s.now().UTC().Format("2006-01-02T15:04:05.000Z"), r.platform}
	out := json.NewEncoder(s.w) // it writes each value at once, with a newline
	out.SetEscapeHTML(false)
	s.err = out.Encode(e)
}

// Phase reports that a phase begins.
func (r Reporter) Phase(phase string) { r.Send(EventPhase, &Phase{Phase: phase}) }

// Printf reports a line of progress: a note in the stream.
func (r Reporter) Printf(format string, args ...any) {
	r.text.Printf(format, args...)
	r.note(fmt.Sprintf(format, args...))
}

// Note reports text for people.
func (r Reporter) Note(text string) {
	r.text.Printf("note: %s\n", text)
	r.note(text)
}

// note writes an event that is for all platforms.
func (r Reporter) note(text string) {
	r.On("").Send(EventNote, &Message{Message: strings.TrimSpace(text)})
}

// Warning reports a warning.
func (r Reporter) Warning(text string) {
	r.text.Printf("warning: %s\n", text)
	r.Send(EventWarning, &Message{Message: text})
}

// Work is a part of a build with progress, counted in bytes. It may be the download of a published file
// or of an image's layers.
type Work struct {
	report Reporter
	item   *progress.Item
	got    atomic.Int64

	// Of a download.
	about DownloadStarted
	known bool // the size was known before
	begin sync.Once
	sum   *atomic.Int64
}

// Work begins a part of a build. total is 0 if the size is not known.
func (r Reporter) Work(name string, total int64) *Work {
	return &Work{report: r, item: r.text.Item(name, total)}
}

// Download begins a download. Its size is 0 if it is not known yet. sum counts what is received.
func (r Reporter) Download(about DownloadStarted, sum *atomic.Int64) *Work {
	return &Work{report: r, item: r.text.Item(about.Name, about.Size), about: about, known: about.Size > 0, sum: sum}
}

// Started reports the start of a download once.
func (w *Work) Started() { w.begin.Do(func() { w.report.Send(EventDownloadStarted, &w.about) }) }

// SetTotal sets the size, when the site reports it. The size of an image is the sum of its layers
// and is known before the download.
func (w *Work) SetTotal(n int64) {
	if w.known {
		return
	}
	w.item.SetTotal(n)
	w.begin.Do(func() {
		w.about.Size = n
		w.report.Send(EventDownloadStarted, &w.about)
	})
}

// Add counts bytes of the content, including bytes that an interrupted build downloaded.
func (w *Work) Add(n int64) {
	w.got.Add(n)
	w.item.Add(n)
}

// Received counts bytes that were sent in this build.
func (w *Work) Received(n int64) { w.sum.Add(n) }

// Done ends the work. contents describes the result.
func (w *Work) Done(note string, contents ...DownloadFinished) {
	w.item.Done(note)
	for _, c := range contents {
		w.report.Send(EventDownloadFinished, &c)
	}
}

// Downloaded ends a download that was verified.
func (w *Work) Downloaded(digest, note string) {
	w.Started()
	w.Done(note, DownloadFinished{Kind: w.about.Kind, Name: w.about.Name, Source: w.about.Source, From: Network, Size: w.got.Load(), Digest: digest})
}

// Failed ends work that failed.
func (w *Work) Failed() { w.item.Failed() }
