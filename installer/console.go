package installer

import (
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"airlift/installer/timeline"
	"airlift/progress"
)

// Console tells the person in front of the host what happens, one line at a
// time. Its lines never need a terminal; bars are drawn only on one.
type Console struct {
	Out io.Writer
	// Results takes what a program may read: manifests.
	Results io.Writer
	// TTY says that Out is a terminal.
	TTY bool
	// Verbosity is the -v flag: 0 quiet, 1 every sub-step, 2 every file.
	Verbosity int
	// Timeline, where there is one, is shown as a table before the closing
	// words.
	Timeline *timeline.Recorder

	summary string
}

// end mentions only what took long enough to be noticed.
func (c *Console) end(d time.Duration) {
	if d > time.Second || c.Verbosity > 0 {
		c.Note("took %s", round(d))
	}
}

// Note prints one indented line about the current step.
func (c *Console) Note(format string, args ...any) {
	fmt.Fprintf(c.Out, "        %s\n", fmt.Sprintf(format, args...))
}

// Warn prints one line that a person should read.
func (c *Console) Warn(format string, args ...any) {
	c.Note("warning: "+format, args...)
}

// Debug prints a line at verbosity level and above.
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

// Summary sets the closing words, printed behind the last step.
func (c *Console) Summary(text string) { c.summary = text }

// close prints the timeline and the closing words.
func (c *Console) close() {
	if c.Timeline != nil {
		fmt.Fprintln(c.Out)
		_ = c.Timeline.WriteTable(c.Out, c.Verbosity > 0)
	}
	if c.summary != "" {
		fmt.Fprintf(c.Out, "\n%s", c.summary)
	}
}

// barInterval is how often a bar is drawn anew.
const barInterval = 100 * time.Millisecond

// Bytes shows how much of total has moved while a step waits for what: a bar on
// a terminal, nothing elsewhere. Both may still grow. Call the result when the
// wait is over.
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
