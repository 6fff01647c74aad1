package progress

import (
	"fmt"
	"io"
	"time"

	"github.com/schollz/progressbar/v3"
)

// A Bar is one line on a terminal: what is worked on, how much of it is done
// and, as soon as they can be known, the rate and the time left. It is for one
// goroutine at a time.
type Bar struct {
	bar  *progressbar.ProgressBar
	rate rate
}

// NewBar draws a bar on w, a terminal, when Show is called.
func NewBar(w io.Writer) *Bar {
	return &Bar{bar: progressbar.NewOptions64(1,
		progressbar.OptionSetWriter(w),
		progressbar.OptionSetPredictTime(false),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionFullWidth(),
		progressbar.OptionUseANSICodes(true),
		progressbar.OptionSetRenderBlankState(false),
	)}
}

// Show draws the bar: of total bytes, done are done. Both may grow.
func (b *Bar) Show(what string, done, total int64) {
	done = min(max(done, 0), total)
	b.rate.add(time.Now(), done)
	b.bar.Describe(fmt.Sprintf("  %-18s %8s of %-8s %10s %10s", short(what, 18), Bytes(done), Bytes(total), b.rate, b.rate.left(total-done)))
	// A full bar would end; the last byte is for Clear.
	b.bar.ChangeMax64(total + 1)
	_ = b.bar.Set64(done)
}

// Clear takes the bar off the screen. Show draws it again.
func (b *Bar) Clear() { _ = b.bar.Clear() }

// short cuts text to a number of characters.
func short(text string, characters int) string {
	if r := []rune(text); len(r) > characters {
		return string(r[:characters-1]) + "…"
	}
	return text
}

const (
	// rateFrom is the time after which bytes count: at first they come out of a
	// cache, all at once.
	rateFrom = time.Second
	// rateAfter is how long bytes must have been counted before a rate means
	// something.
	rateAfter = time.Second
	// rateOver is the time that a rate is the mean of.
	rateOver = 5 * time.Second
	// rateEvery is the time between two samples.
	rateEvery = 100 * time.Millisecond
)

// A rate is how fast a number of bytes has grown lately.
type rate struct {
	began   time.Time // the first sample's
	samples []sample
}

type sample struct {
	at   time.Time
	done int64
}

// add notes that so many bytes are done now.
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

// perSecond is the rate in bytes a second, 0 as long as it means nothing.
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

// String is the rate as people read it, "" as long as it means nothing.
func (r rate) String() string {
	if n := r.perSecond(); n > 0 {
		return Bytes(int64(n)) + "/s"
	}
	return ""
}

// left is how long so many bytes take at this rate, "" if that cannot be known.
func (r rate) left(bytes int64) string {
	n := r.perSecond()
	if n <= 0 {
		return ""
	}
	seconds := int64(float64(bytes)/n + 1)
	switch {
	case seconds < 100:
		return fmt.Sprintf("%d s left", seconds)
	case seconds < 100*60:
		return fmt.Sprintf("%d min left", (seconds+59)/60)
	}
	return fmt.Sprintf("%d h left", (seconds+3599)/3600)
}
