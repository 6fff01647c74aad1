package plan_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"airlift/installer/multihost/plan"
	"airlift/installer/multihost/spec"
	_ "airlift/scripts/fixtures/seed"
)

// One apply that nothing interrupts does all that it can: the next plan has no stages. Only a pause, and what the plan announces, need
// another one. The plan names each node that keeps something from its end.
func TestOneApplyIsEnough(t *testing.T) {
	seen := map[string]int{}
	defer func() {
		for _, what := range []string{"nothing skipped", "skipped", "paused", "again", "the endpoint is not finished"} {
			if seen[what] == 0 {
				t.Errorf("no site: %s: %v", what, seen)
			}
		}
	}()
	rapid.Check(t, func(t *rapid.T) {
		w, remove := newWorld(t)
		remove = remove && rapid.Bool().Draw(t, "remove")
		now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
		var skip []string
		for _, h := range w.spec.Hosts {
			if rapid.IntRange(0, 5).Draw(t, "skip") == 0 {
				skip = append(skip, h.Name)
			}
		}
		var refused []plan.Problem
		next := func(goOn bool) *plan.Plan {
			in := w.input(now, remove, goOn)
			in.Skip = skip
			in.Changes = w.changes(plan.Questions(in))
			p, problems := plan.Make(in)
			if refused = problems; len(problems) > 0 {
				return nil
			}
			return p
		}
		goOn := rapid.Bool().Draw(t, "continue")
		p := next(goOn)
		if p == nil {
			return // it changes nothing, and says why
		}
		for range 8 { // pauses after the control planes, and after one of two groups; the last endpoint, the new one, and another configuration
			w.apply(p, &now, false)
			fresh := next(goOn && !p.Pauses())
			if fresh == nil && announced(p) {
				return // what was announced cannot be done next to a host that is down
			}
			switch {
			case fresh == nil:
				t.Fatalf("after\n%s\nthe next plan is refused", text(p))
			case !announced(p) && (len(fresh.Stages) > 0 || fresh.Pauses() && !p.Pauses()):
				t.Fatalf("after\n%s\nthere is\n%s", text(p), text(fresh))
			case announced(p) && len(fresh.Stages) > 0:
				seen["again"]++
			case fresh.Pauses():
				seen["paused"]++
				paused := fresh
				if goOn, fresh = true, next(true); fresh == nil {
					t.Fatalf("to continue is refused: %+v\nbefore\n%s", refused, text(paused))
				}
			}
			if len(fresh.Stages) == 0 && !fresh.Pauses() {
				w.ended(fresh, remove, skip, seen)
				return
			}
			p = fresh
		}
		t.Fatalf("no end: %s", text(p))
	})
}

// ended asserts that the site matches the file, or that the plan has a note about what it lacks.
func (w *world) ended(p *plan.Plan, remove bool, skip []string, seen map[string]int) {
	if len(skip) == 0 && (remove || len(w.nodes) == len(w.spec.Hosts)) {
		seen["nothing skipped"]++
		w.reached(remove)
		return
	}
	seen["skipped"]++
	held := ""
	for _, r := range p.Rest {
		if r.Outcome == "held" {
			held += r.What + "\n"
		}
	}
	const rest = "the change of the endpoint is not finished until "
	for _, name := range slices.Sorted(maps.Keys(w.nodes)) {
		n := w.nodes[name]
		left := slices.Contains(skip, name) || !slices.ContainsFunc(w.spec.Hosts, func(h spec.Host) bool { return h.Name == name })
		switch {
		case !n.EndpointBehind:
		case left && !strings.Contains(held, rest+name+" follows it"), !left && !(n.EndpointServes && strings.Contains(held, rest)):
			w.t.Fatalf("%s does not follow the endpoint, and only this is held:\n%s", name, held)
		default:
			seen["the endpoint is not finished"]++
		}
	}
	if w.cluster.EndpointWaits && !strings.Contains(held, rest) {
		w.t.Fatalf("the endpoint waits for nothing:\n%s", held)
	}
	if w.cluster.AddonsWait && !strings.Contains(held, "the add-ons keep their version until ") {
		w.t.Fatalf("the add-ons wait, and only this is held:\n%s", held)
	}
}

// announced reports whether the plan says that another apply has work.
func announced(p *plan.Plan) bool {
	return slices.ContainsFunc(p.Rest, func(r plan.Rest) bool { return r.Outcome == "waiting" }) || slices.ContainsFunc(p.Notes, func(n string) bool { return strings.HasSuffix(n, "then run the same command again") })
}

func text(p *plan.Plan) string {
	return strings.Join(lines(p), "\n") + "\nrest: " + fmt.Sprint(p.Rest) + "\nnotes:\n" + strings.Join(p.Notes, "\n")
}
