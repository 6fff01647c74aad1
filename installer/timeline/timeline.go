// Package timeline records what a command did when, and what it waited for:
// for people as a table at the end, for a trace viewer as a file.
//
// The recorder travels in the context, and so does the span that is running:
// whoever waits, however deep, says so with Wait, and the wait is found below
// the step it belongs to, even when several steps run at once. Without a
// recorder in the context all of this does nothing.
package timeline

import (
	"context"
	"strings"
	"sync"
	"time"
)

// A Lane is a row of the timeline. Spans of one lane that overlap without
// nesting are drawn below each other.
type Lane string

// The lanes, from top to bottom. Steps are what the user sees go by; what else
// runs at the same time has a lane of its own, so that its waits are not taken
// for those of the step that happened to start it.
const (
	Steps  Lane = "steps"
	Bundle Lane = "bundle stream"
	Images Lane = "images"
)

var lanes = []Lane{Steps, Bundle, Images}

// kind says what a span is about.
type kind string

const (
	work    kind = "work"
	waiting kind = "wait"
)

// maxStates bounds what a wait remembers of what it saw; one that ends at all
// sees far less. Beyond it only the last is kept.
const maxStates = 256

// A Recorder holds the spans of one run. It may be used from any goroutine; a
// nil one records nothing.
type Recorder struct {
	now   func() time.Time
	began time.Time

	mu    sync.Mutex
	spans []*Span // in the order they began
}

// A Span is something that took time. A nil one, which is what there is
// without a recorder, takes everything and keeps nothing.
type Span struct {
	rec    *Recorder
	lane   Lane
	kind   kind
	name   string
	parent *Span

	// Guarded by rec.mu. Times count from the recorder's beginning.
	begin, end time.Duration
	ended      bool
	brief      string // which of what name says
	states     []state
	details    map[string]any
}

// state is what a wait saw, and since when.
type state struct {
	since time.Duration
	text  string
}

// New makes a recorder whose timeline begins with a step that is over: it
// ends now, and took so long. A step that took no time is none.
func New(step string, took time.Duration) *Recorder { return newRecorder(time.Now, step, took) }

func newRecorder(now func() time.Time, step string, took time.Duration) *Recorder {
	r := &Recorder{now: now, began: now().Add(-took)}
	if took > 0 {
		r.spans = []*Span{{rec: r, lane: Steps, kind: work, name: step, end: took, ended: true}}
	}
	return r
}

type contextKey struct{}

// place is where a context stands in the timeline.
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

// Start begins a span in a lane, below the span that ctx is in. What is begun
// with the context it returns is part of the span. It ends with End.
func Start(ctx context.Context, lane Lane, name string) (context.Context, *Span) {
	at, ok := ctx.Value(contextKey{}).(place)
	if !ok {
		return ctx, nil
	}
	s := at.rec.begin(at.span, lane, work, name)
	return In(ctx, s), s
}

// Wait begins a wait, in the lane of the span that ctx is in. what says in a
// few words what it waits for, which says which of them: "bundle", "bin/runc".
// Waits for the same what count together. It ends with End:
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
		s.Briefly(strings.Join(which, ", "))
	}
	return s
}

// In returns ctx as it is within s.
func In(ctx context.Context, s *Span) context.Context {
	if s == nil {
		return ctx
	}
	return context.WithValue(ctx, contextKey{}, place{s.rec, s})
}

// Here is the span that ctx is in; nil at the top.
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

// End ends the span; what comes after the first End changes nothing.
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

// Saw notes what a wait sees, each time that changes.
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

// Briefly says in a few words what of it is still awaited: "coredns". The last
// one counts.
func (s *Span) Briefly(text string) {
	if s == nil {
		return
	}
	s.rec.mu.Lock()
	defer s.rec.mu.Unlock()
	s.brief = text
}

// Set notes a detail, for the trace: a number of bytes, an outcome. It goes
// into a file that people pass on: never a secret.
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

// snapshot copies the spans as they are now: what still runs ends now, and
// says so.
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

// label is what people read: "pods: coredns".
func (s *Span) label() string {
	if s.brief == "" {
		return s.name
	}
	return s.name + ": " + s.brief
}

// length is how long the span took.
func (s *Span) length() time.Duration { return s.end - s.begin }

// top says that the span is not part of another one in its lane.
func (s *Span) top() bool { return s.parent == nil || s.parent.lane != s.lane }
