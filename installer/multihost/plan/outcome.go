package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"airlift/internal/fault"
)

// A Rest is something that keeps the hosts from matching the file, and that the plan does not change.
type Rest struct {
	// Outcome is paused, waiting, held or skipped.
	Outcome string `json:"outcome"`
	What    string `json:"what"` // "w3 is in the cluster, and not in cluster.yaml"
	Hint    string `json:"hint"` // can be typed
}

// SkippedHint is the hint for hosts that were skipped.
const SkippedHint = "when they answer, run the same command without --skip"

// rest adds a Rest.
func (s *site) rest(code fault.Code, hint, what string, args ...any) {
	s.rests = append(s.rests, Rest{Outcome: code.Word(), What: fmt.Sprintf(what, args...), Hint: hint})
}

// Pauses reports whether the plan stops before the upgrade of other groups, until apply runs with --continue.
func (p *Plan) Pauses() bool {
	return slices.ContainsFunc(p.Rest, func(r Rest) bool { return r.Outcome == fault.Paused.Word() })
}

// precedence has the outcomes of a run. If there are several, the first one decides the exit code: what apply can go on with, then
// what needs a person.
var precedence = []fault.Code{fault.Paused, fault.Waiting, fault.Held, fault.Skipped}

// Outcome returns the outcome of a run after which this is the plan, with its sentence, hint and exit code; nil if the hosts match
// the file. What else there is follows the sentence.
func (p *Plan) Outcome() error {
	list := slices.Clone(p.Rest)
	if len(p.Stages) > 0 {
		more := Rest{fault.Waiting.Word(), "there is more to do: " + p.stages(), "run the same command again"}
		if p.Wait != "" {
			more.What, more.Hint = p.Wait, "apply waits until then: ./install cluster apply"
		}
		list = append(list, more)
	}
	rank := func(r Rest) int {
		return slices.IndexFunc(precedence, func(c fault.Code) bool { return c.Word() == r.Outcome })
	}
	slices.SortStableFunc(list, func(a, b Rest) int { return cmp.Compare(rank(a), rank(b)) })
	if len(list) == 0 {
		return nil
	}
	text := list[0].What
	for _, r := range list[1:] {
		text += fmt.Sprintf("\n%s: %s; %s", r.Outcome, r.What, r.Hint)
	}
	return fault.New(precedence[max(0, rank(list[0]))], "%s", text).Hint(list[0].Hint)
}

// stages lists the names of the stages.
func (p *Plan) stages() string {
	var names []string
	for _, st := range p.Stages {
		names = append(names, st.Name)
	}
	return strings.Join(names, ", ")
}

// closed returns what the first stage waits for, if no host of it may change now, because windows are closed.
func (s *site) closed(stages []Stage) string {
	if len(stages) == 0 || !stages[0].Roll {
		return ""
	}
	var now time.Time
	for _, a := range s.Answers {
		if a.At.After(now) {
			now = a.At
		}
	}
	step := Next(stages[0], RollState{Spec: s.Spec, Cluster: s.cluster, Now: now})
	if step.Until.IsZero() {
		return ""
	}
	return stages[0].Name + ": " + step.Wait
}
