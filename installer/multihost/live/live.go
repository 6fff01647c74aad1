// Package live shows what happens on several hosts at once: a table on a terminal, lines with their times elsewhere, or events.
package live

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"airlift/internal/fault"
	"airlift/internal/progress"
)

// A Display shows events. Several goroutines may use it.
type Display struct {
	// Log, if it is not nil, also gets what the driver does. Host is "" for what is for all hosts.
	Log func(host, text string)

	out   io.Writer
	emit  func(progress.Event) // nil if out is for people
	notes bool                 // without a table, notes are lines, too
	now   func() time.Time

	mu      sync.Mutex
	rows    []*Row
	table   *table // nil if there is no table
	stop    chan struct{}
	aside   bool      // a question is on the screen
	printed time.Time // the last line
	said    string    // what the driver does for all hosts
	until   time.Time // when a wait ends, if that is known
	whole   *whole    // nil if it is not known what there is to do
}

const (
	// refresh is the time between two drawings of the table. Times in it have seconds.
	refresh = 250 * time.Millisecond
	// silence is how long nothing may be printed without a table. A look each second is in time if it comes one second earlier.
	silence = 10 * time.Second
	look    = time.Second
	// longSilence is for the wait for a window, which may take a day.
	longSilence = 10 * time.Minute
)

// New returns a Display that prints on out, with a table if out is a terminal that can draw one. If out has a method
// Emit(progress.Event), it gets events instead. notes also prints notes where there is no table.
func New(out io.Writer, notes bool) *Display {
	d := &Display{out: out, notes: notes, now: time.Now}
	if e, ok := out.(interface{ Emit(progress.Event) }); ok {
		d.emit = e.Emit
		return d
	}
	if f, ok := out.(interface{ Fd() uintptr }); ok && progress.Columns(out) > 0 {
		d.table = &table{out: progress.Raw(out), color: progress.HasColors(out), size: func() (int, int, error) { return term.GetSize(int(f.Fd())) }}
	}
	return d
}

// Start draws the table until Stop is called. Without a table, there is a line when nothing else was printed for a while.
func (d *Display) Start() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stop != nil {
		return
	}
	stop, each := make(chan struct{}), refresh
	if d.table == nil {
		each = look
	}
	d.stop, d.printed = stop, d.now()
	go func() {
		tick := time.NewTicker(each)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				d.mu.Lock()
				if d.stop == stop {
					d.tick()
				}
				d.mu.Unlock()
			}
		}
	}()
	d.draw()
}

// tick shows that time passes. The caller holds the lock.
func (d *Display) tick() {
	now := d.now()
	quiet := silence
	if left := d.until.Sub(now); left > 0 {
		quiet = min(max(left/10, silence), longSilence)
	}
	switch {
	case d.table != nil:
		d.draw()
	case !d.aside && now.Sub(d.printed) >= quiet-look:
		text := d.waitsFor(now)
		d.log("", text)
		d.print(text + "\n")
	}
}

// shownHosts is how many hosts a line names.
const shownHosts = 3

// waitsFor returns what the command waits for.
func (d *Display) waitsFor(now time.Time) string {
	var list []string
	more := 0
	for _, r := range d.rows {
		switch {
		case r.state != running:
		case len(list) == shownHosts:
			more++
		default:
			list = append(list, strings.Join(slices.DeleteFunc([]string{r.host + ": " + r.work, strings.TrimSpace(r.step + " " + r.last()), r.clock(now)}, func(s string) bool { return s == "" }), ", "))
		}
	}
	text := "waiting for " + strings.Join(list, "; ")
	if more > 0 {
		text += fmt.Sprintf("; and %d more hosts", more)
	}
	if len(list) == 0 {
		text = "waiting: " + cmp.Or(d.said, "an answer of the hosts")
	}
	if d.whole != nil {
		text += " (" + d.whole.text(d.rows, now) + ")"
	}
	return text
}

// Stop leaves the last table on the screen and forgets the rows. What is printed later is below it.
func (d *Display) Stop() { d.end(d.draw) }

// Clear removes the table from the screen and forgets the rows, for work whose result is printed.
func (d *Display) Clear() { d.end(func() { d.table.clear() }) }

func (d *Display) end(last func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stop != nil {
		close(d.stop)
		d.stop = nil
		if d.table != nil {
			last()
			d.table.drawn = nil
		}
	}
	d.rows, d.whole, d.said, d.until = nil, nil, "", time.Time{}
}

// draw draws the table, unless a question is on the screen. The caller holds the lock.
func (d *Display) draw() {
	if d.table == nil || d.aside {
		return
	}
	now, foot := d.now(), ""
	if d.whole != nil {
		foot = d.whole.bar(d.rows, now)
	}
	d.table.draw(d.rows, foot, now)
}

// Aside runs what asks the user a question, without the table. Events go on.
func (d *Display) Aside(ask func()) {
	d.setAside(true)
	defer d.setAside(false)
	ask()
}

func (d *Display) setAside(is bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if is && d.stop != nil && d.table != nil {
		d.table.clear()
	}
	d.aside, d.printed = is, d.now()
}

// Printf prints what the driver does for all hosts, above the table.
func (d *Display) Printf(format string, args ...any) { d.Wait(time.Time{}, format, args...) }

// Wait is Printf for a wait. Until is when it ends; zero: that is not known.
func (d *Display) Wait(until time.Time, format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	text := fmt.Sprintf(format, args...)
	d.said, d.until = strings.TrimSpace(text), until
	d.log("", d.said)
	d.print(text)
}

// log records what the driver does.
func (d *Display) log(host, text string) {
	if d.Log != nil {
		d.Log(host, text)
	}
}

// print prints lines above the table, or with their time.
func (d *Display) print(text string) {
	d.printed = d.now()
	switch {
	case d.emit != nil:
	case d.table == nil:
		text = d.printed.Format(time.TimeOnly) + " " + text
	case d.stop != nil && !d.aside:
		d.table.clear()
		defer d.draw()
	}
	_, _ = io.WriteString(d.out, fault.Printable(text)) // a lost output cancels the command
}

// Row adds a row for work on a host. It has the names of all hosts of the site in the order of the first call.
func (d *Display) Row(host, work string) *Row {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range d.rows {
		if r.host == host {
			r.work, r.state, r.step, r.text, r.began, r.share, r.usual = work, waiting, "", "", time.Time{}, 0, 0
			return r
		}
	}
	r := &Row{d: d, host: host, work: work}
	d.rows = append(d.rows, r)
	return r
}

// States of a row, in the order of their importance in a table that is too small for all.
const (
	waiting = iota
	running
	failed
	done
)

// A Row is work on one host.
type Row struct {
	d                      *Display
	host, work, step, text string
	state                  int
	began, ended           time.Time
	share, usual           time.Duration // see Weigh
}

// Begin starts the clock of the row.
func (r *Row) Begin() {
	r.change(progress.Event{Kind: progress.Step, Text: r.work}, func() {
		r.state, r.began, r.d.said, r.d.until = running, r.d.now(), "", time.Time{}
		r.d.log(r.host, r.work)
	})
}

// Show shows an event of the command on the host. The end of a command is not the end of the work: see End.
func (r *Row) Show(e progress.Event) {
	r.change(e, func() {
		switch e.Kind {
		case progress.Step:
			r.step, r.text = fmt.Sprintf("%d/%d", e.Number, e.Of), e.Step
		case progress.Note, progress.Warning:
			r.text = e.Text
		}
	})
}

// Note shows what the driver does or waits for.
func (r *Row) Note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	r.d.log(r.host, text)
	r.Show(progress.Event{Kind: progress.Note, Text: text})
}

// Moving shows how much of a transfer is in place, in bytes. Only a table shows it.
func (r *Row) Moving(what string, inPlace, size int64) {
	r.d.mu.Lock()
	defer r.d.mu.Unlock()
	r.text = fmt.Sprintf("%s %s of %s", what, progress.Bytes(inPlace), progress.Bytes(size))
}

// End ends the work. A nil error is success.
func (r *Row) End(err error) {
	e := progress.Event{Kind: progress.Done, Text: r.work}
	if err != nil {
		e = progress.Event{Kind: progress.Error, Text: err.Error()}
	}
	r.change(e, func() {
		r.state, r.ended, r.text, r.step = done, r.d.now(), "", ""
		if err != nil {
			r.state, r.text = failed, strings.TrimPrefix(err.Error(), r.host+": ")
		}
		r.d.log(r.host, r.work+": "+cmp.Or(r.text, "done"))
		if r.d.whole != nil && r.share > 0 && err == nil {
			r.d.whole.add(1, r.share)
			r.share = 0
		}
	})
}

// change changes the row, and prints the event unless it is only in the table.
func (r *Row) change(e progress.Event, how func()) {
	r.d.mu.Lock()
	defer r.d.mu.Unlock()
	how()
	if r.d.emit != nil {
		e.Host = r.host
		r.d.emit(e)
		r.d.printed = r.d.now()
		return
	}
	if line := r.line(e); line != "" {
		r.d.print(r.host + ": " + line + "\n")
	}
}

// line returns the line for an event; "" if it gets none.
func (r *Row) line(e progress.Event) string {
	text, _, _ := strings.Cut(strings.TrimSpace(e.Text), "\n")
	switch {
	case e.Kind == progress.Warning:
		return "warning: " + text
	case r.d.table != nil, e.Kind == progress.Note && !r.d.notes:
		return ""
	case e.Kind == progress.Step && e.Of > 0:
		return fmt.Sprintf("[%d/%d] %s", e.Number, e.Of, e.Step)
	case e.Kind == progress.Done:
		text = fmt.Sprintf("%s: done, %s", r.work, r.ended.Sub(r.began).Round(100*time.Millisecond))
		if r.d.whole != nil {
			text += " (" + r.d.whole.text(r.d.rows, r.ended) + ")"
		}
		return text
	case e.Kind == progress.Error:
		return r.work + ": failed" // why is in the error of the command
	}
	return text
}
