// Package live shows what happens on several hosts at once: a table on a terminal, lines elsewhere, or events.
package live

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"airlift/internal/fault"
	"airlift/internal/progress"
)

// A Display shows events. Several goroutines may use it.
type Display struct {
	out   io.Writer
	emit  func(progress.Event) // nil if out is for people
	notes bool                 // without a table, notes are lines, too
	now   func() time.Time

	mu    sync.Mutex
	rows  []*Row
	table *table // nil if there is no table
	stop  chan struct{}
	aside bool // a question is on the screen
}

// refresh is the time between two drawings of the table. Times in it have seconds.
const refresh = 250 * time.Millisecond

// New returns a Display that prints on out, with a table if out is a terminal that can draw one. If out has a method
// Emit(progress.Event), it gets events instead. notes also prints notes where there is no table.
func New(out io.Writer, notes bool) *Display {
	d := &Display{out: out, notes: notes, now: time.Now}
	if e, ok := out.(interface{ Emit(progress.Event) }); ok {
		d.emit = e.Emit
		return d
	}
	if f, ok := out.(interface{ Fd() uintptr }); ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb" {
		d.table = &table{out: progress.Raw(out), color: os.Getenv("NO_COLOR") == "", size: func() (int, int, error) { return term.GetSize(int(f.Fd())) }}
	}
	return d
}

// Start draws the table until Stop is called. Without a table, both do nothing.
func (d *Display) Start() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.table == nil || d.stop != nil {
		return
	}
	stop := make(chan struct{})
	d.stop = stop
	go func() {
		tick := time.NewTicker(refresh)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				d.mu.Lock()
				if d.stop == stop {
					d.draw()
				}
				d.mu.Unlock()
			}
		}
	}()
	d.draw()
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
		last()
		d.stop, d.table.drawn = nil, nil
	}
	d.rows = nil
}

// draw draws the table, unless a question is on the screen. The caller holds the lock.
func (d *Display) draw() {
	if !d.aside {
		d.table.draw(d.rows, d.now())
	}
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
	if is && d.stop != nil {
		d.table.clear()
	}
	d.aside = is
}

// Printf prints text above the table.
func (d *Display) Printf(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.print(fmt.Sprintf(format, args...))
}

// print prints lines above the table.
func (d *Display) print(text string) {
	if d.stop != nil && !d.aside {
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
			r.work, r.state, r.step, r.text, r.began = work, waiting, "", "", time.Time{}
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
}

// Begin starts the clock of the row.
func (r *Row) Begin() {
	r.change(progress.Event{Kind: progress.Step, Text: r.work}, func() { r.state, r.began = running, r.d.now() })
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
	r.Show(progress.Event{Kind: progress.Note, Text: fmt.Sprintf(format, args...)})
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
		return fmt.Sprintf("%s: done, %s", r.work, r.ended.Sub(r.began).Round(100*time.Millisecond))
	case e.Kind == progress.Error:
		return r.work + ": failed" // why is in the error of the command
	}
	return text
}
