//go:build e2e

package e2e

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"airlift/scripts/lab"
)

// timelineFile is the path of the timeline that the tests request.
const timelineFile = "/root/timeline.json"

// A traceEvent is an event in the Trace Event Format; times are in µs.
type traceEvent struct {
	Name, Cat, Ph string
	Ts, Dur       float64
	Pid, Tid      int
	Args          map[string]any
}

func (e traceEvent) end() float64 { return e.Ts + e.Dur }

type trace struct {
	TraceEvents []traceEvent
	OtherData   map[string]string
}

// takeTimeline reads the file and removes it.
func takeTimeline(t *testing.T, h *lab.Host) (tr trace, text string) {
	t.Helper()
	if mode := strings.TrimSpace(run(t, h, "stat", "-c", "%a", timelineFile)); mode != "644" {
		t.Errorf("%s has mode %s", timelineFile, mode)
	}
	text = run(t, h, "cat", timelineFile)
	run(t, h, "rm", timelineFile)
	if err := json.Unmarshal([]byte(text), &tr); err != nil {
		t.Fatalf("%s: %v\n%s", timelineFile, err, text)
	}
	return tr, text
}

// rows returns the complete events by the name of their row: "steps".
func (tr trace) rows() map[string][]traceEvent {
	names, rows := map[int]string{}, map[string][]traceEvent{}
	for _, e := range tr.TraceEvents {
		switch {
		case e.Ph == "M" && e.Name == "thread_name":
			names[e.Tid], _ = e.Args["name"].(string)
		case e.Ph == "X":
			rows[names[e.Tid]] = append(rows[names[e.Tid]], e)
		}
	}
	return rows
}

// timelineTells fails unless the timeline on the host is complete for the run with the
// output out: all its steps, all images, no secrets.
func timelineTells(t *testing.T, h *lab.Host, out string, images []string, secrets ...string) {
	t.Helper()
	tr, text := takeTimeline(t, h)
	if tr.OtherData["outcome"] != "done" || tr.OtherData["kubernetesVersion"] != version {
		t.Errorf("about the run: %v", tr.OtherData)
	}
	for _, s := range secrets {
		if strings.Contains(text, s) {
			t.Errorf("%q is in the timeline", s)
		}
	}
	contains(t, out, "This took ", timelineFile)
	steps := map[string]bool{}
	var covered, last float64
	var all []traceEvent
	for name, row := range tr.rows() {
		var open []traceEvent
		for _, e := range row {
			open = slices.DeleteFunc(open, func(o traceEvent) bool { return o.end() <= e.Ts })
			if n := len(open); n > 0 && (open[n-1].Ts > e.Ts || open[n-1].end() < e.end()) {
				t.Errorf("%s: %v overlaps %v", name, e, open[n-1])
			}
			if len(open) == 0 && strings.HasPrefix(name, "steps") {
				steps[e.Name] = true
				all = append(all, e)
			}
			open = append(open, e)
			last = max(last, e.end())
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^\[ *\d+/\d+\] (\S+)`).FindAllStringSubmatch(out, -1) {
		if !steps[m[1]] {
			t.Errorf("the step %s is not in the timeline", m[1])
		}
	}
	slices.SortFunc(all, func(a, b traceEvent) int { return int(a.Ts - b.Ts) })
	at := 0.0
	for _, e := range all {
		covered += max(0, e.end()-max(at, e.Ts))
		at = max(at, e.end())
	}
	if covered < 0.9*last {
		t.Errorf("steps are %.1f s of %.1f s: what is the rest?", covered/1e6, last/1e6)
	}
	for _, image := range images {
		if !regexp.MustCompile(`"name": "[^ "]*/` + image + `:[^"]*",\s*"cat": "work"`).MatchString(text) {
			t.Errorf("the image %s is not in the timeline", image)
		}
	}
}
