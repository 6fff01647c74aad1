// Package timeline records when a command did what, and what it waited for: as
// a table for people, and as a file for a trace viewer.
//
// The context carries the recorder and the current span. Code that waits calls
// Wait, and the wait becomes part of the step in its context, even when several
// steps run in parallel. Without a recorder in the context, nothing is recorded.
package timeline

import (
	"context"
	"strings"
	"sync"
	"time"
)

// A Lane is a group of rows in the timeline. Spans of one lane that overlap
// without nesting get separate rows.
type Lane string

// The lanes, from top to bottom. Steps are the steps that the user sees. Work
// that runs in parallel has its own lane, so that its waits do not count
// as waits of the step that started it.
const (
	Steps  Lane = "steps"
	Bundle Lane = "bundle stream"
	Images Lane = "images"
)

var lanes = []Lane{Steps, Bundle, Images}

type kind string

const (
	work    kind = "work"
	waiting kind = "wait"
)

// maxStates limits how many states a wait keeps; beyond it, the last one is
// overwritten. A wait that ends sees far fewer.
const maxStates = 256

// A Recorder holds the spans of one run. It may be used from any goroutine; a
// nil one records nothing.
type Recorder struct {
	now   func() time.Time
	began time.Time

	mu    sync.Mutex
	spans []*Span // in the order they began
}

// A Span is something that took time. All methods accept a nil Span, which is
// what callers get without a recorder, and then do nothing.
type Span struct {
	rec    *Recorder
	lane   Lane
	kind   kind
	name   string
	parent *Span

	// Guarded by rec.mu. Times count from the recorder's beginning.
	begin, end time.Duration
	ended      bool
	awaited    string // which of the things that name covers
	states     []state
	details    map[string]any
}

// state is a state that a wait saw, and since when.
type state struct {
	since time.Duration
	text  string
}

// New creates a recorder whose timeline begins with a finished step: it ends now
// and took the given time. With a time of zero there is no such step.
func New(step string, took time.Duration) *Recorder { return newRecorder(time.Now, step, took) }

func newRecorder(now func() time.Time, step string, took time.Duration) *Recorder {
	r := &Recorder{now: now, began: now().Add(-took)}
	if took > 0 {
		r.spans = []*Span{{rec: r, lane: Steps, kind: work, name: step, end: took, ended: true}}
	}
	return r
}

type contextKey struct{}

// place is the position of a context in the timeline.
type place struct {
	rec  *Recorder
	span *Span // nil at the top
}

// Context returns a context whose spans r records.
func (r *Recorder) Context(ctx context.Context) context.Context {
	if r == nil {
		return ctx
	}
	return context.WithValue(ctx, contextKey{}, place{rec: r})
}

// Start begins a span in a lane, as part of the span of ctx. Spans that begin
// with the returned context are part of it. It ends with End.
func Start(ctx context.Context, lane Lane, name string) (context.Context, *Span) {
	at, ok := ctx.Value(contextKey{}).(place)
	if !ok {
		return ctx, nil
	}
	s := at.rec.begin(at.span, lane, work, name)
	return In(ctx, s), s
}

// Wait begins a wait, in the lane of the span of ctx. what names the awaited thing, and which a
// part of it: "bundle", "bin/runc". The times of waits with the same what are added up. It ends
// with End:
//
//	defer timeline.Wait(ctx, "systemd", "reload").End()
func Wait(ctx context.Context, what string, which ...string) *Span {
	at, ok := ctx.Value(contextKey{}).(place)
	if !ok {
		return nil
	}
	lane := Steps
	if at.span != nil {
		lane = at.span.lane
	}
	s := at.rec.begin(at.span, lane, waiting, what)
	if len(which) > 0 {
		s.Awaiting(strings.Join(which, ", "))
	}
	return s
}

// In returns a context whose current span is s.
func In(ctx context.Context, s *Span) context.Context {
	if s == nil {
		return ctx
	}
	return context.WithValue(ctx, contextKey{}, place{s.rec, s})
}

// Here returns the span of ctx; nil at the top.
func Here(ctx context.Context) *Span {
	at, _ := ctx.Value(contextKey{}).(place)
	return at.span
}

func (r *Recorder) begin(parent *Span, lane Lane, k kind, name string) *Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &Span{rec: r, lane: lane, kind: k, name: name, parent: parent, begin: r.elapsed()}
	r.spans = append(r.spans, s)
	return s
}

func (r *Recorder) elapsed() time.Duration { return r.now().Sub(r.began) }

// End ends the span; later calls change nothing.
func (s *Span) End() {
	if s == nil {
		return
	}
	s.rec.mu.Lock()
	defer s.rec.mu.Unlock()
	if !s.ended {
		s.end, s.ended = s.rec.elapsed(), true
	}
}

// Saw records the state that a wait sees, if it has changed.
func (s *Span) Saw(text string) {
	if s == nil || text == "" {
		return
	}
	s.rec.mu.Lock()
	defer s.rec.mu.Unlock()
	switch n := len(s.states); {
	case n == maxStates:
		s.states[n-1].text = text
	case n == 0 || s.states[n-1].text != text:
		s.states = append(s.states, state{s.rec.elapsed(), text})
	}
}

// Awaiting sets, in a few words, which part is still awaited: "coredns". The
// last call counts.
func (s *Span) Awaiting(text string) {
	if s == nil {
		return
	}
	s.rec.mu.Lock()
	defer s.rec.mu.Unlock()
	s.awaited = text
}

// Set records a detail for the trace: a number of bytes, an outcome. People
// share trace files: never record a secret.
func (s *Span) Set(key string, value any) {
	if s == nil {
		return
	}
	s.rec.mu.Lock()
	defer s.rec.mu.Unlock()
	if s.details == nil {
		s.details = map[string]any{}
	}
	s.details[key] = value
}

// snapshot copies the spans as they are now: the end of a running span is now.
func (r *Recorder) snapshot() (spans []*Span, now time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now = r.elapsed()
	copies := make(map[*Span]*Span, len(r.spans))
	for _, s := range r.spans {
		c := *s
		c.states = append([]state(nil), s.states...)
		c.details = make(map[string]any, len(s.details))
		for k, v := range s.details {
			c.details[k] = v
		}
		c.parent = copies[s.parent] // parents began before
		if !c.ended {
			c.end = now
		}
		copies[s] = &c
		spans = append(spans, &c)
	}
	return spans, now
}

// label is the text for people: "pods: coredns".
func (s *Span) label() string {
	if s.awaited == "" {
		return s.name
	}
	return s.name + ": " + s.awaited
}

func (s *Span) length() time.Duration { return s.end - s.begin }

// top reports whether the span is not part of another one in its lane.
func (s *Span) top() bool { return s.parent == nil || s.parent.lane != s.lane }
