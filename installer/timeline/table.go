package timeline

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	tableWidth = 80
	barWidth   = 10
	nameWidth  = 22 // at most: kubelet-wait-bootstrap
	// short is the length of a run that needs no table: everything was done already.
	short = 2 * time.Second
	// A step that took less than 1/notable of the run, or less than
	// noticeable, is only counted.
	notable    = 50
	noticeable = 100 * time.Millisecond
)

// WriteTable writes a line for each long step: when it began, how long it took,
// its position in the run as a bar, and what it waited for most. With all, it
// lists every step and its parts, also of a short run.
func (r *Recorder) WriteTable(w io.Writer, all bool) error {
	if r == nil {
		return nil
	}
	spans, total := r.snapshot()
	if total < short && !all {
		_, err := fmt.Fprintf(w, "This took %s.\n", seconds(total))
		return err
	}
	t := table{spans: spans, total: total, all: all}
	t.list(nil, Steps, 0)
	steps, hidden, rest := t.rows, t.hidden, t.rest
	t.rows = nil
	t.list(nil, Bundle, 0)
	aside := t.rows
	var b bytes.Buffer
	fmt.Fprintf(&b, "This took %s:\n\n", seconds(total))
	width := len("step")
	for _, row := range slices.Concat(steps, aside) {
		width = max(width, min(nameWidth, utf8.RuneCountInString(row.name)))
	}
	fmt.Fprintf(&b, "%7s %7s  %-*s  %-*s  %s\n", "start", "took", width, "step", barWidth, "", "waited for")
	for _, row := range steps {
		t.line(&b, width, row)
	}
	if hidden > 0 {
		fmt.Fprintf(&b, "%7s %7s  %s\n", "", seconds(rest), others(hidden))
	}
	if len(aside) > 0 {
		fmt.Fprintf(&b, "%7s %7s  in parallel:\n", "", "")
	}
	for _, row := range aside {
		t.line(&b, width, row)
	}
	_, err := w.Write(b.Bytes())
	return err
}

func others(n int) string {
	if n == 1 {
		return "another step"
	}
	return fmt.Sprintf("%d other steps", n)
}

type table struct {
	spans  []*Span
	total  time.Duration
	all    bool
	rows   []tableRow
	hidden int           // steps that are not shown
	rest   time.Duration // and how long they took
}

type tableRow struct {
	span *Span
	name string
}

// list adds rows for the long spans of a lane that are parts of parent.
func (t *table) list(parent *Span, lane Lane, depth int) {
	var below []*Span
	for _, s := range t.spans {
		part := s.parent == parent
		if parent == nil {
			part = s.top()
		}
		if s.lane == lane && s.kind == work && part {
			below = append(below, s)
		}
	}
	slices.SortStableFunc(below, func(a, b *Span) int { return cmp.Compare(a.begin, b.begin) })
	for _, s := range below {
		if !t.all && (s.length() < noticeable || s.length() < t.total/notable) {
			t.hidden++
			t.rest += s.length()
			continue
		}
		t.rows = append(t.rows, tableRow{s, strings.Repeat("  ", depth) + s.name})
		if t.all && lane != Bundle { // it has hundreds of parts
			t.list(s, lane, depth+1)
		}
	}
}

func (t *table) line(b *bytes.Buffer, width int, row tableRow) {
	s := row.span
	line := fmt.Sprintf("%7s %7s  %-*s  %s  ", seconds(s.begin), seconds(s.length()), width, cut(row.name, width), t.bar(s))
	line += cut(t.waited(s), tableWidth-utf8.RuneCountInString(line))
	b.WriteString(strings.TrimRight(line, " ") + "\n")
}

// bar shows the span's position in the run, at least one character wide.
func (t *table) bar(s *Span) string {
	bar := bytes.Repeat([]byte("."), barWidth)
	at := func(d time.Duration) int { return int(int64(d) * barWidth / max(int64(t.total), 1)) }
	from := min(at(s.begin), barWidth-1)
	for i := from; i < max(from+1, min(at(s.end), barWidth)); i++ {
		bar[i] = '#'
	}
	return string(bar)
}

// waited describes what the span waited for most: the label of the longest of
// these waits, and their total length if it differs from the span's.
func (t *table) waited(s *Span) string {
	sum, longest := map[string]time.Duration{}, map[string]*Span{}
	most := ""
	for _, w := range t.spans {
		if w.kind != waiting || !w.partOf(s) {
			continue
		}
		sum[w.name] += w.length()
		if l := longest[w.name]; l == nil || w.length() > l.length() {
			longest[w.name] = w
		}
		if sum[w.name] > sum[most] {
			most = w.name
		}
	}
	if sum[most] < noticeable/2 {
		return ""
	}
	text := longest[most].label()
	if sum[most] < s.length()*9/10 {
		text = seconds(sum[most]) + " " + text
	}
	return text
}

// partOf reports whether s is below other in the same lane.
func (s *Span) partOf(other *Span) bool {
	for p := s; !p.top(); p = p.parent {
		if p.parent == other {
			return true
		}
	}
	return false
}

func seconds(d time.Duration) string {
	if d >= 100*time.Second {
		return fmt.Sprintf("%.0f s", d.Seconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

// cut shortens text to n characters.
func cut(text string, n int) string {
	runes := []rune(text)
	if len(runes) <= n {
		return text
	}
	return strings.TrimRight(string(runes[:max(n-1, 0)]), " ,:") + "…"
}
