package events

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
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

// write writes one event. fill gets its head.
func (r Reporter) write(name string, fill func(Head) any) {
	s := r.stream
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return
	}
	e := json.NewEncoder(s.w) // it writes each value at once, with a newline
	e.SetEscapeHTML(false)
	s.err = e.Encode(fill(Head{name, s.now().UTC().Format("2006-01-02T15:04:05.000Z"), r.platform}))
}

// Start reports that a build for these platforms begins.
func (r Reporter) Start(platforms []string) {
	r.write(EventStart, func(h Head) any { return Start{h, FormatVersion, platforms} })
}

// Phase reports that a phase begins.
func (r Reporter) Phase(phase string) {
	r.write(EventPhase, func(h Head) any { return Phase{h, phase} })
}

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
	r.On("").write(EventNote, func(h Head) any { return Message{h, strings.TrimSpace(text)} })
}

// Warning reports a warning.
func (r Reporter) Warning(text string) {
	r.text.Printf("warning: %s\n", text)
	r.write(EventWarning, func(h Head) any { return Message{h, text} })
}

// DownloadStarted reports a download without progress. It sets the head of d.
func (r Reporter) DownloadStarted(d DownloadStarted) {
	r.write(EventDownloadStarted, func(h Head) any { d.Head = h; return d })
}

// DownloadFinished reports content without progress. It sets the head of d.
func (r Reporter) DownloadFinished(d DownloadFinished) {
	r.write(EventDownloadFinished, func(h Head) any { d.Head = h; return d })
}

// Result reports the result for one platform. It sets the head of result.
func (r Reporter) Result(result Result) {
	r.write(EventResult, func(h Head) any { result.Head = h; return result })
}

// Error reports the end of a build that failed. It sets the head of e.
func (r Reporter) Error(e Error) {
	r.write(EventError, func(h Head) any { e.Head = h; return e })
}

// Work is a part of a build with progress, counted in bytes.
type Work struct {
	report Reporter
	item   *progress.Item
}

// Work begins a part of a build. total is 0 if the size is not known.
func (r Reporter) Work(name string, total int64) *Work { return &Work{r, r.text.Item(name, total)} }

// Add counts bytes.
func (w *Work) Add(n int64) { w.item.Add(n) }

// Done ends the work. contents describes the result.
func (w *Work) Done(note string, contents ...DownloadFinished) {
	w.item.Done(note)
	for _, c := range contents {
		w.report.DownloadFinished(c)
	}
}

// Failed ends work that failed.
func (w *Work) Failed() { w.item.Failed() }
