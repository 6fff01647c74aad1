package live

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"airlift/internal/progress"
	_ "airlift/scripts/fixtures/seed"
)

// A clocked output has the time of each line.
type clocked struct {
	mu    sync.Mutex
	lines []string
	times []time.Time
}

func (c *clocked) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for line := range strings.Lines(string(p)) {
		c.lines, c.times = append(c.lines, line), append(c.times, time.Now())
	}
	return len(p), nil
}

// An act is work on a host: it begins after a while, takes a while, and shows steps in between.
type act struct {
	host        string
	after, took time.Duration
	steps       int
	fails       bool
}

// Without a table, no more than ten seconds pass without a line, whatever hosts do; each line begins with its time, and one that only
// shows that time passes names what is waited for. How much is done never gets less.
func TestNoSilence(t *testing.T) {
	waits, percents := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		second := rapid.Map(rapid.IntRange(0, 2000), func(n int) time.Duration { return time.Duration(n) * 100 * time.Millisecond })
		var acts []act
		for i := range rapid.IntRange(0, 6).Draw(rt, "hosts") {
			acts = append(acts, act{fmt.Sprint("h", i), second.Draw(rt, "after"), second.Draw(rt, "took"), rapid.IntRange(0, 4).Draw(rt, "steps"), rapid.IntRange(0, 4).Draw(rt, "fails") == 0})
		}
		end := second.Draw(rt, "end")
		whole, json := rapid.Bool().Draw(rt, "whole"), rapid.Bool().Draw(rt, "json")
		out := &clocked{}
		var began time.Time
		synctest.Test(t, func(*testing.T) {
			began = time.Now()
			w := io.Writer(out)
			if json {
				w = &emitting{out}
			}
			d := New(w, false)
			d.Start()
			d.Printf("compare with the file\n")
			if whole {
				d.Expect(len(acts), time.Minute, time.Duration(len(acts))*time.Second)
			}
			var wg sync.WaitGroup
			for _, a := range acts {
				r := d.Row(a.host, "join").Weigh(time.Second, 20*time.Second)
				wg.Go(func() {
					time.Sleep(a.after)
					r.Begin()
					for n := range a.steps {
						time.Sleep(a.took / time.Duration(a.steps+1))
						r.Show(progress.Event{Kind: progress.Step, Step: "step", Number: n + 1, Of: a.steps})
					}
					time.Sleep(a.took / time.Duration(a.steps+1))
					if a.fails {
						r.End(io.ErrUnexpectedEOF)
					} else {
						r.End(nil)
					}
				})
			}
			wg.Wait()
			time.Sleep(end)
			d.Stop()
			out.times = append(out.times, time.Now())
		})
		last := began
		for i, at := range out.times {
			if silent := at.Sub(last); silent > silence {
				rt.Fatalf("%s of silence before line %d:\n%s", silent, i, strings.Join(out.lines, ""))
			}
			last = at
		}
		percent := 0
		for i, line := range out.lines {
			if clock := out.times[i].Format(time.TimeOnly) + " "; !json && !strings.HasPrefix(line, clock) {
				rt.Fatalf("%q does not begin with %q", line, clock)
			}
			if _, text, found := strings.Cut(line, "waiting"); found {
				waits++
				if strings.TrimLeft(text, " for:") == "" {
					rt.Fatalf("%q names nothing", line)
				}
			}
			if before, _, found := strings.Cut(line, " %, about "); found {
				percents++
				n, err := strconv.Atoi(before[strings.LastIndex(before, " ")+1:])
				if err != nil || n < percent || n > 100 {
					rt.Fatalf("%d %% after %d %%: %q", n, percent, line)
				}
				percent = n
			}
		}
	})
	if waits == 0 || percents == 0 {
		t.Errorf("%d waits, %d percents", waits, percents)
	}
}

// An emitting output has events, and texts as notes.
type emitting struct{ *clocked }

func (e *emitting) Emit(ev progress.Event) { _, _ = fmt.Fprintf(e, "%s %s\n", ev.Kind, ev.Text) }

// A wait for a window that opens in two days prints lines, but not each ten seconds; the last ones come more often.
func TestQuietWaitForAWindow(t *testing.T) {
	out := &clocked{}
	synctest.Test(t, func(*testing.T) {
		d := New(out, false)
		d.Start()
		opens := time.Now().Add(48 * time.Hour)
		d.Wait(opens, "upgrade canary: waiting: the window of w1 opens at %s\n", opens.Format(time.TimeOnly))
		time.Sleep(48 * time.Hour)
		d.Stop()
	})
	if n := len(out.lines); n < 48*5 || n > 48*7+20 {
		t.Errorf("%d lines", n)
	}
	for i, line := range out.lines[1:] {
		if !strings.Contains(line, "waiting: upgrade canary: waiting: the window of w1 opens at ") || out.times[i+1].Sub(out.times[i]) > longSilence {
			t.Fatalf("%q after %s", line, out.times[i+1].Sub(out.times[i]))
		}
	}
}

// The last line of a table is the progress of the run, and the table is not higher than the terminal.
func TestBar(t *testing.T) {
	width, height := 80, 5
	d, out, now := aTable(&width, &height)
	d.Expect(4, 2*time.Minute, 4*time.Second)
	var rows []*Row
	for i := range 4 {
		rows = append(rows, d.Row(fmt.Sprint("h", i), "join").Weigh(time.Second, 30*time.Second))
	}
	rows[0].Begin()
	rows[1].Begin()
	*now = now.Add(30 * time.Second)
	rows[0].End(nil)
	d.draw()
	s := &screen{width: width}
	s.show(t, out.String())
	got := strings.Join(s.lines, "\n")
	if len(s.lines) != height-1 || !strings.HasPrefix(got, "h1  join ") || !strings.Contains(got, "\nand 2 more hosts: 0 running, 0 failed, 1 waiting, 1 done\n") ||
		!strings.HasSuffix(got, "\n[#########-----------]  0:30  1 of 4 actions, 48 %, about 47 s left") {
		t.Errorf("got\n%s", got)
	}
}
