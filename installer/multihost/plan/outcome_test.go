package plan_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"airlift/installer/multihost/plan"
	"airlift/internal/fault"
	_ "airlift/scripts/fixtures/seed"
)

// A plan without stages and a rest is done. Any other one has the first outcome that is documented, and its text has all of them.
func TestOutcome(t *testing.T) {
	order := []string{"paused", "waiting", "held", "skipped"}
	codes := map[string]fault.Code{"paused": 7, "waiting": 9, "held": 8, "skipped": 6}
	rapid.Check(t, func(t *rapid.T) {
		p := &plan.Plan{}
		var has []string
		for _, outcome := range rapid.Permutation(order).Draw(t, "outcomes") {
			switch {
			case !rapid.Bool().Draw(t, "has "+outcome):
				continue
			case outcome == "waiting":
				p.Stages = []plan.Stage{{Name: "why " + outcome}}
			default:
				p.Rest = append(p.Rest, plan.Rest{Outcome: outcome, What: "why " + outcome, Hint: "do " + outcome})
			}
			has = append(has, outcome)
		}
		err := p.Outcome()
		if (err == nil) != (len(has) == 0) {
			t.Fatalf("%q: %v", has, err)
		}
		for _, outcome := range order {
			if err == nil || !strings.Contains(strings.Join(has, " "), outcome) {
				continue
			}
			if fault.ExitCode(err) != codes[outcome] || fault.Hint(err) == "" || outcome != "waiting" && fault.Hint(err) != "do "+outcome {
				t.Fatalf("%q: %d, hint %q", has, fault.ExitCode(err), fault.Hint(err))
			}
			var out strings.Builder
			fault.Print(&out, err)
			for _, other := range has {
				if !strings.Contains(out.String(), "why "+other) || !strings.Contains("\n"+out.String(), "\n"+other+": ") {
					t.Fatalf("%q: %s", has, out.String())
				}
			}
			return
		}
	})
}
