// Package progress shows the progress of transfers: a bar on a terminal, otherwise one line
// for each finished item.
package progress

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"golang.org/x/term"
)

// A Display shows items and, on a terminal, a bar for the sum of all items so far. Several
// goroutines may use it. A nil *Display shows nothing.
type Display struct {
	out io.Writer

	mu      sync.Mutex
	bar     *Bar // nil if there is no terminal
	running []*Item
	total   int64
	done    int64
}

// New shows progress on w, with a bar if w is a terminal that can draw one.
func New(w io.Writer) *Display {
	d := &Display{out: w}
	if f, ok := w.(interface{ Fd() uintptr }); ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb" {
		d.bar = NewBar(w)
	}
	return d
}

// An Item is one transfer, such as a file or an image.
type Item struct {
	d           *Display
	name        string
	total, done int64
}

// Item starts an item of total bytes; 0 if the size is not known yet.
func (d *Display) Item(name string, total int64) *Item {
	i := &Item{d: d, name: name, total: total}
	if d == nil {
		return i
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.running = append(d.running, i)
	d.total += total
	d.draw()
	return i
}

// SetTotal sets the item's size.
func (i *Item) SetTotal(bytes int64) {
	d := i.d
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.total += bytes - i.total
	i.total = bytes
	d.draw()
}

// Add adds transferred bytes; a negative number subtracts.
func (i *Item) Add(bytes int64) {
	d := i.d
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.done += bytes
	i.done += bytes
	d.draw()
}

// Done ends the item and prints its line: its name, its size if it has one, and note.
func (i *Item) Done(note string) {
	d := i.d
	if d == nil {
		return
	}
	size := ""
	if bytes := max(i.total, i.done); bytes > 0 {
		size = Bytes(bytes)
	}
	d.end(i)
	d.Printf("  %-50s %9s  %s\n", i.name, size, note)
}

// Failed ends the item without a line; the caller prints the error.
func (i *Item) Failed() {
	if i.d != nil {
		i.d.end(i)
	}
}

func (d *Display) end(i *Item) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for n, r := range d.running {
		if r == i {
			d.running = append(d.running[:n:n], d.running[n+1:]...)
			break
		}
	}
	// Bytes that did not have to be transferred count as transferred.
	d.done += i.total - i.done
	i.done = i.total
	d.draw()
}

// Printf prints a line above the bar.
func (d *Display) Printf(format string, args ...any) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.bar != nil {
		d.bar.Clear()
	}
	fmt.Fprintf(d.out, format, args...)
	d.draw()
}

// Close removes the bar. The display can be used again afterwards.
func (d *Display) Close() {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.running, d.total, d.done = nil, 0, 0
	if d.bar != nil {
		d.bar.Clear()
		d.bar = NewBar(d.out)
	}
}

// draw updates the bar. The caller holds the lock.
func (d *Display) draw() {
	if d.bar == nil || len(d.running) == 0 || d.total <= 0 {
		return
	}
	names := make([]string, 0, len(d.running))
	for _, i := range d.running {
		names = append(names, i.name)
	}
	d.bar.Show(strings.Join(names, ", "), d.done, d.total)
}

// Bytes formats a number of bytes: "12.3 MB".
func Bytes(n int64) string {
	switch {
	case n < 1000:
		return fmt.Sprintf("%d B", n)
	case n < 1000_000:
		return fmt.Sprintf("%.1f kB", float64(n)/1e3)
	case n < 1000_000_000:
		return fmt.Sprintf("%.1f MB", float64(n)/1e6)
	}
	return fmt.Sprintf("%.2f GB", float64(n)/1e9)
}
