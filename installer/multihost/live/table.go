package live

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"airlift/internal/progress"
)

// A table is drawn over its last drawing. Each drawing is one write, so that it does not flicker.
type table struct {
	out   io.Writer
	color bool
	size  func() (width, height int, err error)
	drawn []string // lines on the screen, without colors
	last  string   // the last drawing
}

// Sequences of ECMA-48.
const (
	clearLine  = "\x1b[K" // from the cursor to the end of the line
	clearBelow = "\x1b[J" // from the cursor to the end of the screen
	upLines    = "\x1b[%dA"
)

// fallbackWidth and fallbackHeight are for a terminal that does not know its size.
const fallbackWidth, fallbackHeight = 80, 24

func (t *table) dimensions() (width, height int) {
	width, height, err := t.size()
	if err != nil || width <= 0 || height <= 0 {
		return fallbackWidth, fallbackHeight
	}
	return width, height
}

// draw replaces the last drawing. foot is the line below the rows, "" for none.
func (t *table) draw(rows []*Row, foot string, now time.Time) {
	width, height := t.dimensions()
	var b strings.Builder
	var drawn []string
	list := lines(rows, now, width, max(height-1-min(len(foot), 1), 1))
	if foot != "" {
		list = append(list, line{text: foot})
	}
	for _, l := range list {
		text := cut(l.text, width-1)
		drawn = append(drawn, text)
		if t.color && l.color != "" {
			text = l.color + text + progress.Plain
		}
		b.WriteString(text + clearLine + "\n")
	}
	b.WriteString(clearBelow)
	if len(t.drawn) > 0 && b.String() == t.last {
		return
	}
	_, _ = io.WriteString(t.out, t.toTop(width)+b.String())
	t.drawn, t.last = drawn, b.String()
}

// clear removes the drawing.
func (t *table) clear() {
	width, _ := t.dimensions()
	_, _ = io.WriteString(t.out, t.toTop(width)+clearBelow)
	t.drawn = nil
}

// toTop moves the cursor to the first line of the drawing. A terminal that became narrower has wrapped its lines.
func (t *table) toTop(width int) string {
	up := 0
	for _, line := range t.drawn {
		up += max(1, (utf8.RuneCountInString(line)+width-1)/width)
	}
	if up == 0 {
		return "\r"
	}
	return "\r" + fmt.Sprintf(upLines, up)
}

type line struct{ text, color string }

// besideNames are the columns between the names and the text. A text gets at least a third of the width: on a terminal that is
// too narrow, the work and the step are left out.
const besideNames = len("  ") + len("  12/19") + len("  100:00") + len("  ")

// lines returns the lines for rows, at most height. If that is too few, hosts that are done or wait are only counted.
func lines(rows []*Row, now time.Time, width, height int) (list []line) {
	hosts, works := 0, 0
	for _, r := range rows {
		hosts, works = max(hosts, utf8.RuneCountInString(r.host)), max(works, utf8.RuneCountInString(r.work))
	}
	shown := rows
	if len(rows) > height {
		shown = important(rows, max(height-1, 1))
	}
	hidden := map[int]int{}
	for _, r := range rows {
		hidden[r.state]++
	}
	for _, r := range shown {
		hidden[r.state]--
		text := fmt.Sprintf("%-*s  %-*s  %5s  %6s  %s", hosts, r.host, works, r.work, r.step, r.clock(now), r.last())
		if hosts+works+besideNames > width*2/3 {
			text = fmt.Sprintf("%-*s  %6s  %s", hosts, r.host, r.clock(now), r.last())
		}
		list = append(list, line{strings.TrimRight(text, " "), map[int]string{failed: progress.Red, done: progress.Green}[r.state]})
	}
	if len(shown) < len(rows) {
		list = append(list, line{text: fmt.Sprintf("and %d more hosts: %d running, %d failed, %d waiting, %d done",
			len(rows)-len(shown), hidden[running], hidden[failed], hidden[waiting], hidden[done])})
	}
	return list
}

// important returns n rows: first the running rows, then failed, waiting and finished rows, each in their order.
func important(rows []*Row, n int) (list []*Row) {
	for _, state := range []int{running, failed, waiting, done} {
		for _, r := range rows {
			if r.state == state && len(list) < n {
				list = append(list, r)
			}
		}
	}
	return list
}

// clock is the time of the work: 1:05.
func (r *Row) clock(now time.Time) string {
	if r.state == waiting {
		return ""
	}
	if r.state != running {
		now = r.ended
	}
	seconds := int(now.Sub(r.began) / time.Second)
	return fmt.Sprintf("%d:%02d", seconds/60, seconds%60)
}

// last is the text at the end of a line.
func (r *Row) last() string {
	text, _, _ := strings.Cut(strings.TrimSpace(r.text), "\n")
	switch r.state {
	case waiting:
		return "waiting"
	case failed:
		return "failed: " + text
	case done:
		return "done"
	}
	return text
}

// cut truncates a text to a width in characters, and removes what would move the cursor.
func cut(text string, width int) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, text)
	if r := []rune(text); len(r) > max(width, 1) {
		return string(r[:max(width, 1)-1]) + "…"
	}
	return text
}
