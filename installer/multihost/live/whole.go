package live

import (
	"fmt"
	"strings"
	"time"

	"airlift/internal/progress"
)

// A whole is the progress of all that a run has to do.
type whole struct {
	actions, ended int
	expected       time.Duration // of the run
	weight, done   time.Duration // of all actions, and of those that have ended
	began          time.Time
	shown          float64 // it never goes back
	waited         time.Duration
}

// Expect begins the progress of a run: how many actions it has, how long it may take, and the sum of the weights of its actions. The rows
// are those of hosts that change, each with what happens there first.
func (d *Display) Expect(actions int, expected, weight time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.rows = nil
	d.whole = &whole{actions: actions, expected: expected, weight: max(weight, 1), began: d.now()}
}

// Passed adds actions that have ended and had no rows.
func (d *Display) Passed(actions int, weight time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.whole != nil {
		d.whole.add(actions, weight)
	}
}

// Waited takes a wait for a window out of the time of the run: nothing can be done meanwhile.
func (d *Display) Waited(t time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.whole != nil {
		d.whole.waited += t
	}
}

// Weigh makes the work of a row a part of the run. Share is its weight, and usual how long it takes.
func (r *Row) Weigh(share, usual time.Duration) *Row {
	r.d.mu.Lock()
	defer r.d.mu.Unlock()
	r.share, r.usual = share, usual
	return r
}

func (w *whole) add(actions int, weight time.Duration) {
	w.ended += actions
	w.done += weight
}

// mostOfARow is how much of a row is done at most before it ends.
const mostOfARow = 0.95

// part returns how much of the run is done, from 0 to 1: rows that run count by the time that they usually take.
func (w *whole) part(rows []*Row, now time.Time) float64 {
	done := float64(w.done)
	for _, r := range rows {
		if r.state == running && r.share > 0 {
			done += float64(r.share) * min(float64(now.Sub(r.began))/float64(max(r.usual, time.Second)), mostOfARow)
		}
	}
	w.shown = min(max(w.shown, done/float64(w.weight)), 1)
	return w.shown
}

// text returns how much of the run is done, and the time that is left: the more is done, the more that comes from the pace of this run.
func (w *whole) text(rows []*Row, now time.Time) string {
	part := w.part(rows, now)
	spent := now.Sub(w.began) - w.waited
	left := time.Duration((1 - part) * (float64(spent) + (1-part)*float64(w.expected)))
	return fmt.Sprintf("%d of %d actions, %d %%, about %s left", w.ended, w.actions, int(part*100), progress.Span(left))
}

const barWidth = 20

// bar is the line below the rows.
func (w *whole) bar(rows []*Row, now time.Time) string {
	full := int(w.part(rows, now) * barWidth)
	seconds := int(now.Sub(w.began) / time.Second)
	return fmt.Sprintf("[%s%s]  %d:%02d  %s", strings.Repeat("#", full), strings.Repeat("-", barWidth-full), seconds/60, seconds%60, w.text(rows, now))
}
