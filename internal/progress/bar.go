package progress

import (
	"fmt"
	"io"
	"time"

	"github.com/schollz/progressbar/v3"
)

// A Bar is one line on a terminal: the current item, how much of it is done and, when
// known, the rate and the remaining time. Only one goroutine at a time may use it.
type Bar struct {
	bar  *progressbar.ProgressBar
	rate rate
}

// Raw returns the output below w for what draws on a terminal, if w cleans texts of what could control one.
func Raw(w io.Writer) io.Writer {
	if cleans, ok := w.(interface{ Raw() io.Writer }); ok {
		return cleans.Raw()
	}
	return w
}

// NewBar draws a bar on w, a terminal, when Show is called.
func NewBar(w io.Writer) *Bar {
	return &Bar{bar: progressbar.NewOptions64(1,
		progressbar.OptionSetWriter(Raw(w)),
		progressbar.OptionSetPredictTime(false),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionFullWidth(),
		progressbar.OptionUseANSICodes(true),
		progressbar.OptionSetRenderBlankState(false),
	)}
}

// Show draws the bar with done of total bytes. Both may grow.
func (b *Bar) Show(what string, done, total int64) {
	done = min(max(done, 0), total)
	b.rate.add(time.Now(), done)
	b.bar.Describe(fmt.Sprintf("  %-18s %8s of %-8s %10s %10s", short(what, 18), Bytes(done), Bytes(total), b.rate, b.rate.left(total-done)))
	// A full bar would end, so the last byte is left to Clear.
	b.bar.ChangeMax64(total + 1)
	_ = b.bar.Set64(done)
}

// Clear removes the bar from the screen. Show draws it again.
func (b *Bar) Clear() { _ = b.bar.Clear() }

// short truncates text to a number of characters.
func short(text string, characters int) string {
	if r := []rune(text); len(r) > characters {
		return string(r[:characters-1]) + "…"
	}
	return text
}

const (
	// rateFrom is the time before which bytes do not count: the first ones come from a
	// cache, all at once.
	rateFrom = time.Second
	// rateAfter is the minimum time between the first and the last sample for a usable
	// rate.
	rateAfter = time.Second
	// rateOver is the period over which the rate is averaged.
	rateOver = 5 * time.Second
	// rateEvery is the time between two samples.
	rateEvery = 100 * time.Millisecond
)

// A rate is the recent growth of a number of bytes.
type rate struct {
	began   time.Time // time of the first sample
	samples []sample
}

type sample struct {
	at   time.Time
	done int64
}

// add adds a sample.
func (r *rate) add(now time.Time, done int64) {
	if len(r.samples) == 0 {
		r.began = now
	}
	if now.Sub(r.began) <= rateFrom {
		r.samples = []sample{{now, done}}
		return
	}
	if n := len(r.samples); n > 0 && now.Sub(r.samples[n-1].at) < rateEvery {
		return
	}
	r.samples = append(r.samples, sample{now, done})
	for now.Sub(r.samples[0].at) > rateOver {
		r.samples = r.samples[1:]
	}
}

// perSecond is the rate in bytes per second, or 0 if it is not known yet.
func (r rate) perSecond() float64 {
	if len(r.samples) < 2 {
		return 0
	}
	first, last := r.samples[0], r.samples[len(r.samples)-1]
	if last.at.Sub(first.at) < rateAfter || last.done <= first.done {
		return 0
	}
	return float64(last.done-first.done) / last.at.Sub(first.at).Seconds()
}

// String formats the rate, or returns "" if it is not known yet.
func (r rate) String() string {
	if n := r.perSecond(); n > 0 {
		return Bytes(int64(n)) + "/s"
	}
	return ""
}

// left formats the remaining time for the given bytes, or returns "" if it is not known.
func (r rate) left(bytes int64) string {
	n := r.perSecond()
	if n <= 0 {
		return ""
	}
	return Span(time.Duration(float64(bytes)/n+1)*time.Second) + " left"
}
