package workflow

import (
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"airlift/installer/timeline"
	"airlift/internal/progress"
)

// Console prints progress for the user, one line at a time. The lines also suit
// a file or a pipe; progress bars appear only on a terminal.
type Console struct {
	// Out gets events instead of lines if it has a method Emit(progress.Event).
	Out io.Writer
	// Results receives the output that a script may read: manifests.
	Results io.Writer
	// TTY reports whether Out is a terminal.
	TTY bool
	// Verbosity is the -v flag. From 1 on, sub-steps, files and objects are
	// printed too.
	Verbosity int
	// Timeline, if not nil, is printed as a table before the summary.
	Timeline *timeline.Recorder

	summary string
}

// end prints how long a step took, if it took more than a second.
func (c *Console) end(d time.Duration) {
	if d > time.Second || c.Verbosity > 0 {
		c.Note("took %s", round(d))
	}
}

// print prints an event, or else the text.
func (c *Console) print(e progress.Event, text string) {
	if out, ok := c.Out.(interface{ Emit(progress.Event) }); ok {
		out.Emit(e)
		return
	}
	fmt.Fprint(c.Out, text)
}

// Note prints one indented line about the current step.
func (c *Console) Note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	c.print(progress.Event{Kind: progress.Note, Text: text}, "        "+text+"\n")
}

// Warn prints a warning.
func (c *Console) Warn(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	c.print(progress.Event{Kind: progress.Warning, Text: text}, "        warning: "+text+"\n")
}

// Debug prints a line if the verbosity is at least level.
func (c *Console) Debug(level int, format string, args ...any) {
	if c.Verbosity >= level {
		c.Note(format, args...)
	}
}

func round(d time.Duration) time.Duration {
	if d > 10*time.Second {
		return d.Round(time.Second)
	}
	return d.Round(10 * time.Millisecond)
}

// Summary sets the text that is printed after the last step.
func (c *Console) Summary(text string) { c.summary = text }

// Close prints the timeline and the summary.
func (c *Console) Close() {
	if c.Timeline != nil {
		fmt.Fprintln(c.Out)
		_ = c.Timeline.WriteTable(c.Out, c.Verbosity > 0)
	}
	if c.summary != "" {
		c.print(progress.Event{Kind: progress.Done, Text: c.summary}, "\n"+c.summary)
	}
}

// barInterval is the time between two updates of a progress bar.
const barInterval = 100 * time.Millisecond

// Bytes shows the number of processed and total bytes while a step waits. what names the awaited
// thing. It draws a bar on a terminal and prints nothing elsewhere. Both numbers may still grow.
// The caller calls stop when the wait is over.
func (c *Console) Bytes(what string, moved, total *atomic.Int64) (stop func()) {
	if !c.TTY || moved.Load() >= total.Load() {
		return func() {}
	}
	bar := progress.NewBar(c.Out)
	done, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(barInterval)
		defer tick.Stop()
		for {
			bar.Show(what, moved.Load(), total.Load())
			select {
			case <-tick.C:
			case <-done:
				bar.Clear()
				return
			}
		}
	}()
	return func() {
		close(done)
		<-stopped
	}
}

// Count returns a number with a noun: "1 image", "2 images".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
