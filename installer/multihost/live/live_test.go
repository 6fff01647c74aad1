package live

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"airlift/internal/progress"
)

// A screen replays what a table writes, as a terminal of a size does: lines that are too long wrap.
type screen struct {
	width int
	lines []string
	row   int
}

// show replays text of the table: carriage returns, line feeds, and the three sequences that it uses.
func (s *screen) show(t *testing.T, text string) {
	t.Helper()
	for text != "" {
		var n int
		switch {
		case strings.HasPrefix(text, "\r"):
			text = text[1:]
		case strings.HasPrefix(text, "\n"):
			s.row++
			text = text[1:]
		case strings.HasPrefix(text, clearLine):
			text = text[len(clearLine):]
		case strings.HasPrefix(text, clearBelow):
			s.lines = s.lines[:min(s.row, len(s.lines))]
			text = text[len(clearBelow):]
		case strings.HasPrefix(text, progress.Red), strings.HasPrefix(text, progress.Green):
			text = text[len(progress.Red):]
		case strings.HasPrefix(text, progress.Plain):
			text = text[len(progress.Plain):]
		case strings.HasPrefix(text, "\x1b["):
			if _, err := fmt.Sscanf(text, "\x1b[%dA", &n); err != nil || n > s.row {
				t.Fatalf("%q at row %d: %v", text, s.row, err)
			}
			s.row -= n
			text = text[strings.Index(text, "A")+1:]
		default:
			end := strings.IndexAny(text, "\r\n\x1b")
			if end < 0 {
				end = len(text)
			}
			for len(s.lines) <= s.row {
				s.lines = append(s.lines, "")
			}
			s.lines[s.row] = text[:end]
			if len([]rune(text[:end])) > s.width {
				t.Fatalf("a line of %d columns on a terminal of %d: %q", len([]rune(text[:end])), s.width, text[:end])
			}
			text = text[end:]
		}
	}
}

// aTable returns a Display with a table for a terminal, without its clock.
func aTable(width, height *int) (*Display, *bytes.Buffer, *time.Time) {
	var out bytes.Buffer
	now := time.Date(2026, 11, 27, 17, 0, 0, 0, time.UTC)
	d := &Display{out: &out, now: func() time.Time { return now }, stop: make(chan struct{})}
	d.table = &table{out: &out, size: func() (int, int, error) { return *width, *height, nil }}
	return d, &out, &now
}

func TestTable(t *testing.T) {
	width, height := 60, 20
	d, out, now := aTable(&width, &height)
	s := &screen{width: width}
	a, b := d.Row("cp1", "init"), d.Row("worker-1", "join")
	a.Begin()
	*now = now.Add(65 * time.Second)
	a.Show(progress.Event{Kind: progress.Step, Step: "wait-control-plane", Number: 12, Of: 19})
	d.draw()
	s.show(t, out.String())
	want := "cp1       init  12/19    1:05  wait-control-plane\nworker-1  join                 waiting"
	if got := strings.Join(s.lines, "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}

	out.Reset()
	a.End(nil)
	b.Begin()
	b.Show(progress.Event{Kind: progress.Warning, Text: "swap is on"})
	d.Printf("next stage\n")
	b.End(errors.New("no space left on the disk, and a text that is longer than the terminal\nsecond line"))
	d.draw()
	s.show(t, out.String())
	want = "worker-1: warning: swap is on\nnext stage\n" +
		"cp1       init           1:05  done\nworker-1  join           0:00  failed: no space left on th…"
	if got := strings.Join(s.lines, "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// A table with more hosts than lines shows the hosts that run and fail, and counts the others.
func TestTableIsNotHigherThanTheTerminal(t *testing.T) {
	width, height := 80, 6
	d, out, _ := aTable(&width, &height)
	for n := range 30 {
		r := d.Row(fmt.Sprintf("w%02d", n), "join")
		switch n {
		case 7:
			r.Begin()
			r.End(errors.New("no"))
		case 20:
			r.Begin()
		}
	}
	out.Reset()
	d.draw()
	s := &screen{width: width}
	s.show(t, out.String())
	got := strings.Join(s.lines, "\n")
	if len(s.lines) != 5 || !strings.HasPrefix(got, "w20") || !strings.Contains(got, "\nw07  join           0:00  failed: no\n") || !strings.HasSuffix(got, "and 26 more hosts: 0 running, 0 failed, 26 waiting, 0 done") {
		t.Errorf("got\n%s", got)
	}
}

// After the terminal became narrower, the drawing begins where its wrapped lines begin.
func TestTableOnANarrowerTerminal(t *testing.T) {
	width, height := 80, 20
	d, out, _ := aTable(&width, &height)
	d.Row("w1", "join").Begin()
	d.rows[0].text = strings.Repeat("x", 100)
	d.draw()
	out.Reset()
	width = 40
	d.draw()
	if !strings.HasPrefix(out.String(), "\r\x1b[2A") {
		t.Errorf("%q", out.String())
	}
	if lines := strings.Split(out.String(), "\n"); len(lines) != 2 || len([]rune(strings.TrimSuffix(lines[0], clearLine))) > 50 {
		t.Errorf("%q", lines)
	}
}

func TestLines(t *testing.T) {
	var out bytes.Buffer
	d := New(&out, false)
	d.now = func() time.Time { return time.Date(2026, 11, 29, 17, 0, 5, 0, time.UTC) }
	d.Start()
	r := d.Row("cp1", "init")
	r.Begin()
	r.Show(progress.Event{Kind: progress.Step, Step: "preflight", Number: 1, Of: 3})
	r.Show(progress.Event{Kind: progress.Note, Text: "not shown"})
	r.Show(progress.Event{Kind: progress.Warning, Text: "swap is on"})
	r.Moving("file", 1, 2)
	r.End(errors.New("it failed\nbecause"))
	d.Stop()
	if want := strings.ReplaceAll("@cp1: init\n@cp1: [1/3] preflight\n@cp1: warning: swap is on\n@cp1: init: failed\n", "@", "17:00:05 "); out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

// emitter is an output with --progress json.
type emitter struct{ bytes.Buffer }

func (e *emitter) Emit(ev progress.Event) { _ = json.NewEncoder(e).Encode(ev) }

func TestEvents(t *testing.T) {
	out := &emitter{}
	d := New(out, false)
	r := d.Row("cp1", "init")
	r.Begin()
	r.Note("waiting")
	r.End(nil)
	var kinds []string
	for line := range strings.Lines(out.String()) {
		var e progress.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.Host != "cp1" {
			t.Errorf("%q: %v", line, err)
		}
		kinds = append(kinds, e.Kind+" "+e.Text)
	}
	if got := strings.Join(kinds, ", "); got != "step init, note waiting, done init" {
		t.Error(got)
	}
}

// A question is not drawn over.
func TestAside(t *testing.T) {
	width, height := 80, 20
	d, out, _ := aTable(&width, &height)
	r := d.Row("cp1", "connect")
	r.Begin()
	d.draw()
	d.Aside(func() {
		out.Reset()
		r.Note("connecting")
		d.mu.Lock()
		d.draw()
		d.mu.Unlock()
		if out.Len() > 0 {
			t.Errorf("%q", out.String())
		}
	})
}

// A drawing that changes nothing is not written.
func TestTableIsWrittenOnlyWhenItChanges(t *testing.T) {
	width, height := 80, 20
	d, out, now := aTable(&width, &height)
	d.Row("w1", "join").Begin()
	d.draw()
	out.Reset()
	d.draw()
	if out.Len() > 0 {
		t.Errorf("%q", out.String())
	}
	*now = now.Add(time.Second)
	if d.draw(); out.Len() == 0 {
		t.Error("the clock does not advance")
	}
}

// On a narrow terminal, the text that matters is on the screen: without colors, nothing else shows a host that failed.
func TestNarrowTable(t *testing.T) {
	width, height := 40, 20
	d, out, _ := aTable(&width, &height)
	s := &screen{width: width}
	a, b := d.Row("worker-1", "remove the installer"), d.Row("worker-2", "remove the installer")
	a.Begin()
	b.Begin()
	a.End(errors.New("the disk is full"))
	b.End(nil)
	d.draw()
	s.show(t, out.String())
	if got := strings.Join(s.lines, "\n"); got != "worker-1    0:00  failed: the disk is …\nworker-2    0:00  done" {
		t.Errorf("got\n%s", got)
	}
}

// What a host writes cannot control the terminal: in the table, in lines and in warnings.
func TestTextsOfHostsCannotControlTheTerminal(t *testing.T) {
	const evil = "a\x1b[2J\x07\x1b]0;x\x07b"
	width, height := 100, 20
	d, out, _ := aTable(&width, &height)
	var plainText bytes.Buffer
	for _, display := range []*Display{d, New(&plainText, true)} {
		r := display.Row("w1", "join")
		r.Begin()
		r.Show(progress.Event{Kind: progress.Step, Step: evil, Number: 1, Of: 2})
		r.Show(progress.Event{Kind: progress.Warning, Text: evil})
		r.Note("%s", evil)
		r.End(errors.New(evil))
	}
	d.draw()
	if strings.Contains(out.String()+plainText.String(), "\x1b[2J") || strings.Contains(out.String()+plainText.String(), "\x07") {
		t.Errorf("%q\n%q", out.String(), plainText.String())
	}
}
