package timeline

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"
)

// About describes the run of a trace. It is written to the file: no secrets.
type About struct {
	Command           string // "install init --upload-certs"
	Version           string // this installer's
	KubernetesVersion string // "" if the run did not get that far
	Outcome           string // "done", "failed", "interrupted"
}

// WriteTrace writes the spans so far in the Trace Event Format, which
// chrome://tracing and ui.perfetto.dev open. Running spans are marked unfinished.
//
// The format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
func (r *Recorder) WriteTrace(w io.Writer, about About) error {
	spans, now := r.snapshot()
	file := traceFile{
		DisplayTimeUnit: "ms",
		OtherData: map[string]string{
			"command": about.Command, "version": about.Version, "kubernetesVersion": about.KubernetesVersion,
			"outcome": about.Outcome, "started": r.began.UTC().Format(time.RFC3339Nano),
			"seconds": fmt.Sprintf("%.3f", now.Seconds()),
		},
		TraceEvents: []event{{Phase: "M", Name: "process_name", Process: 1, Args: map[string]any{"name": about.Command}}},
	}
	thread := 0
	for _, lane := range lanes {
		for i, row := range rows(spans, lane) {
			thread++
			name := string(lane)
			if i > 0 {
				name = fmt.Sprintf("%s (%d)", lane, i+1)
			}
			file.TraceEvents = append(file.TraceEvents,
				event{Phase: "M", Name: "thread_name", Process: 1, Thread: thread, Args: map[string]any{"name": name}},
				event{Phase: "M", Name: "thread_sort_index", Process: 1, Thread: thread, Args: map[string]any{"sort_index": thread}})
			for _, s := range row {
				file.TraceEvents = append(file.TraceEvents, s.events(thread)...)
			}
		}
	}
	out := json.NewEncoder(w)
	out.SetIndent("", " ")
	return out.Encode(file)
}

type traceFile struct {
	TraceEvents     []event           `json:"traceEvents"`
	DisplayTimeUnit string            `json:"displayTimeUnit"`
	OtherData       map[string]string `json:"otherData"`
}

// event is a complete event (ph X) or metadata (ph M). Times are in µs.
type event struct {
	Name     string         `json:"name"`
	Category string         `json:"cat,omitempty"`
	Phase    string         `json:"ph"`
	Time     int64          `json:"ts"`
	Duration *int64         `json:"dur,omitempty"`
	Process  int            `json:"pid"`
	Thread   int            `json:"tid"`
	Args     map[string]any `json:"args,omitempty"`
}

// events are the span and, below it, the states that it saw.
func (s *Span) events(thread int) []event {
	args := s.details
	if !s.ended {
		args["unfinished"] = true
	}
	if s.parent != nil && s.top() {
		args["started by"] = s.parent.name
	}
	if n := len(s.states); n > 0 {
		args["last seen"] = s.states[n-1].text
	}
	events := []event{complete(string(s.kind), s.label(), s.begin, s.end, thread, args)}
	for i, seen := range s.states {
		until := s.end
		if i+1 < len(s.states) {
			until = s.states[i+1].since
		}
		events = append(events, complete("seen", seen.text, min(seen.since, s.end), min(until, s.end), thread, nil))
	}
	return events
}

// complete rounds both ends and not the length, so that nested spans stay nested.
func complete(category, name string, begin, end time.Duration, thread int, args map[string]any) event {
	length := end.Microseconds() - begin.Microseconds()
	return event{Name: name, Category: category, Phase: "X", Time: begin.Microseconds(), Duration: &length, Process: 1, Thread: thread, Args: args}
}

// rows distributes a lane's spans over as few rows as possible, so that any two
// spans in a row are either disjoint or nested: viewers drop or misplace spans
// that only overlap.
func rows(spans []*Span, lane Lane) [][]*Span {
	var list []*Span
	for _, s := range spans {
		if s.lane == lane {
			list = append(list, s)
		}
	}
	// A span comes before its parts, because it began before them.
	slices.SortStableFunc(list, func(a, b *Span) int { return cmp.Compare(a.begin, b.begin) })
	var rows [][]*Span
	var open [][]*Span // spans that have not ended yet, by row, the innermost last
	home := map[*Span]int{}
	fits := func(s *Span, row int) bool {
		open[row] = slices.DeleteFunc(open[row], func(o *Span) bool { return o.end <= s.begin && o != s.parent })
		n := len(open[row])
		return n == 0 || open[row][n-1] == s.parent && s.end <= s.parent.end
	}
	for _, s := range list {
		row, known := home[s.parent] // a part belongs in the row of its parent
		for i := 0; !known || !fits(s, row); i++ {
			if i == len(rows) {
				rows, open = append(rows, nil), append(open, nil)
			}
			row, known = i, true
		}
		rows[row], open[row], home[s] = append(rows[row], s), append(open[row], s), row
	}
	return rows
}
