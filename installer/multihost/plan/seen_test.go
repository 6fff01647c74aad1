package plan_test

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"airlift/installer/multihost/plan"
	_ "airlift/scripts/fixtures/seed"
)

// Whatever happens to the hosts between a plan and its run, the reason why the plan is not valid any more is what changed, and never
// other options: nobody used others.
func TestReasonIsWhatChanged(t *testing.T) {
	differ := 0
	rapid.Check(t, func(t *rapid.T) {
		w, remove := newWorld(t)
		now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
		fails := func() {
			for _, h := range w.spec.Hosts {
				w.broken[h.Name] = w.nodes[h.Name] != nil && rapid.IntRange(0, 2).Draw(t, "down") == 0
			}
		}
		fails()
		in := w.input(now, remove, rapid.Bool().Draw(t, "continue"))
		for _, h := range w.spec.Hosts {
			if rapid.IntRange(0, 5).Draw(t, "skip") == 0 {
				in.Skip = append(in.Skip, h.Name)
			}
		}
		look := func() *plan.Plan {
			in.Answers = w.answers(now)
			in.Changes = w.changes(plan.Questions(in))
			p, _ := plan.Make(in)
			return p
		}
		saved := look()
		if saved == nil {
			return
		}
		switch rapid.IntRange(0, 2).Draw(t, "what happens") {
		case 0:
			fails()
		case 1:
			for _, st := range saved.Stages {
				if st.Owed == nil && !w.run(st.Actions, st.Limit, true) {
					break
				}
			}
			w.heal()
		default:
			for _, a := range in.Answers {
				if c := a.Facts.Cluster; c != nil && len(c.Nodes) > 0 {
					n := w.nodes[rapid.SampledFrom(c.Nodes).Draw(t, "node").Name]
					if rapid.Bool().Draw(t, "it serves the endpoint") {
						n.EndpointServes = n.EndpointBehind && n.ControlPlane
					} else {
						n.Unschedulable = !n.Unschedulable
					}
					break
				}
			}
		}
		fresh := look()
		if fresh == nil {
			return
		}
		err := plan.Same(saved, fresh)
		if err == nil {
			return
		}
		if differ++; strings.Contains(err.Error(), "the actions differ") {
			t.Fatalf("%v\nbefore\n%s\nnow\n%s", err, text(saved), text(fresh))
		}
	})
	if differ == 0 {
		t.Error("no plan differs")
	}
}

// The reason names the host that is down, and what it decides.
func TestReasonNamesTheHostThatIsDown(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*plan.Input)
		want string
	}{
		"a worker holds its group": {func(in *plan.Input) { view(*in).Nodes[3].Ready, in.Skip = false, []string{"w0"} }, "w0: is down: none in the plan, true now"},
		"the last node for pods": {func(in *plan.Input) {
			for i := 3; i < 6; i++ {
				view(*in).Nodes[i].Ready = false
			}
		}, "cp1: its pods can move: yes in the plan, no, w0, w1, w2 are down now"},
	} {
		before, after := site(oldVersion), site(oldVersion)
		for _, in := range []plan.Input{before, after} {
			for i := range 3 {
				view(in).Nodes[i].Taints = []string{"node-role.kubernetes.io/control-plane:NoSchedule"}
			}
		}
		c.edit(&after)
		before.Skip = after.Skip
		saved, _ := plan.Make(before)
		fresh, problems := plan.Make(after)
		if fresh == nil {
			t.Fatalf("%s: %+v", name, problems)
		}
		if err := plan.Same(saved, fresh); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "other options") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
