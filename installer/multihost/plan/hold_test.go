package plan_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"airlift/installer/multihost/facts"
	"airlift/installer/multihost/plan"
	"airlift/installer/multihost/spec"
	_ "airlift/scripts/fixtures/seed"
)

// Workers that are down, skipped or not, hold no plan back: what they keep from changing is in the plan, and each stage that it has
// ends, although nobody repairs them.
func TestEachStageEndsNextToWorkersThatAreDown(t *testing.T) {
	held, ended := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		w, remove := newWorld(t)
		now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
		var skip []string
		for _, h := range w.spec.Hosts {
			if h.Role == spec.Worker && w.nodes[h.Name] != nil && rapid.Bool().Draw(t, "down") {
				w.broken[h.Name] = true
				switch rapid.IntRange(0, 3).Draw(t, "why") {
				case 0, 1:
					skip = append(skip, h.Name)
				case 2:
					w.machines[h.Name].unfinished, w.machines[h.Name].ran = "join", newVersion
				}
			}
		}
		in := w.input(now, remove, rapid.Bool().Draw(t, "continue"))
		in.Skip = skip
		in.Changes = w.changes(plan.Questions(in))
		p, problems := plan.Make(in)
		if len(problems) > 0 {
			return
		}
		c := facts.Cluster{}
		for _, a := range in.Answers {
			if a.Facts.Cluster != nil {
				c = *a.Facts.Cluster
			}
		}
		c.Nodes, c.EtcdMembers = slices.Clone(c.Nodes), slices.Clone(c.EtcdMembers)
		for _, st := range p.Stages {
			if st.Roll && !ends(st, plan.RollState{Spec: w.spec, Cluster: &c, Now: now}) {
				t.Fatalf("stage %s waits without an end:\n%s", st.Name, text(p))
			}
			for _, a := range st.Actions {
				if i := slices.IndexFunc(c.Nodes, func(n facts.ClusterNode) bool { return n.Name == a.Host }); i >= 0 && a.Verb == plan.Join {
					c.Nodes[i].Ready = true
				}
				if a.Verb == plan.Remove || a.Verb == plan.RemoveOff {
					c.Nodes = slices.DeleteFunc(c.Nodes, func(n facts.ClusterNode) bool { return n.Name == a.Host })
					c.EtcdMembers = slices.DeleteFunc(c.EtcdMembers, func(m facts.EtcdMember) bool { return m.Name == a.Host })
				}
			}
		}
		ended++
		for _, r := range p.Rest {
			if r.Outcome == "held" && strings.Contains(r.What, "so these do not change") {
				held++
				if slices.IndexFunc(skip, func(name string) bool { return strings.Contains(r.What, name) }) < 0 && len(w.broken) == 0 {
					t.Fatalf("nobody is down: %s", r.What)
				}
			}
		}
	})
	if held == 0 || ended == 0 {
		t.Errorf("%d plans are held, %d ended", held, ended)
	}
}

// ends reports whether a stage ends if what it changes is up afterwards, and the other hosts stay as they are.
func ends(st plan.Stage, s plan.RollState) bool {
	for range 100 {
		step := plan.Next(st, s)
		switch {
		case step.Done:
			return true
		case len(step.Batch) == 0 && step.Until.IsZero():
			return false
		case len(step.Batch) == 0:
			s.Now = step.Until
		}
		for _, a := range step.Batch {
			s.Done = append(s.Done, a.Host)
			if i := slices.IndexFunc(s.Cluster.Nodes, func(n facts.ClusterNode) bool { return n.Name == a.Host }); i >= 0 {
				s.Cluster.Nodes[i].Ready = true
			}
		}
	}
	return false
}

// What an action prints as its effect on pods is what its command does. Nothing else moves pods.
func TestEffectsAreTheCommands(t *testing.T) {
	seen := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		w, remove := newWorld(t)
		w.spec.Roll.DrainTimeout = 3 * time.Minute
		in := w.input(time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC), remove, rapid.Bool().Draw(t, "continue"))
		p, problems := plan.Make(in)
		if len(problems) > 0 {
			return
		}
		reads, keeps := false, false // whether a host has read the file, and the leader keeps it: no cluster of the model does before
		for _, st := range p.Stages {
			for _, a := range st.Actions {
				seen[a.Verb+" "+a.Effect]++
				line := fmt.Sprint(a.Commands)
				verb, _, _ := strings.Cut(a.Verb, " (")
				if words := strings.Fields(verb); a.Verb != plan.NodeMeta && a.Verb != plan.Pass && !strings.Contains(line, words[len(words)-1]) {
					t.Fatalf("%s has the command %s", a.Verb, line)
				}
				if f := in.Answers[a.Host].Facts; a.Verb == plan.Remove {
					var verbs []string
					for _, args := range a.Commands {
						verbs = append(verbs, strings.Join(slices.DeleteFunc(slices.Clone(args), func(arg string) bool {
							return strings.HasPrefix(arg, "--drain") || arg == "3m0s" || arg == "--yes"
						}), " "))
					}
					want := []string{"node remove " + a.Host}
					if f.Node != nil || f.Unfinished != "" {
						want = append([]string{map[bool]string{true: "reset --force --remove-node", false: "reset --force"}[a.Adopted]}, want...)
					}
					if f.Node != nil {
						want = append([]string{"node remove " + a.Host + " --keep-node"}, want...)
					}
					if !slices.Equal(verbs, want) {
						t.Fatalf("%s has the commands %q, want %q", a.Verb, verbs, want)
					}
				}
				reads = reads || a.Verb == plan.Join || a.Images
				keeps = keeps || a.Host == p.Leader && (a.Verb == plan.Init || a.Verb == plan.Registry || a.Verb == plan.Unpack && strings.Contains(line, "phase registry"))
				if w.spec.EmbeddedRegistry && reads && !keeps && st.Owed == nil {
					t.Fatalf("%s reads the file, and %s does not keep it yet:\n%s", a.Host, p.Leader, text(p))
				}
				moves := strings.Contains(line, "--drain-timeout 3m0s")
				stays := strings.Contains(line, "--drain=false")
				canMove := slices.Contains([]string{plan.Upgrade, plan.UpgradeApply, plan.Remove, plan.RemoveOff}, a.Verb)
				drains := a.Effect == plan.Drain && w.spec.Roll.Drain
				if canMove && (moves != drains || stays == drains) || !canMove && (moves || stays) {
					t.Fatalf("%s has the effect %s, and the command %s", a.Verb, a.Effect, line)
				}
				if a.Effect == plan.Drain && a.Verb == plan.Upgrade && slices.Contains(w.others, a.Host) {
					t.Fatalf("%s is drained, and somebody else made it unschedulable", a.Host)
				}
			}
		}
	})
	for _, what := range []string{plan.Upgrade + " drain", plan.Upgrade + " restart", plan.Remove + " drain", plan.Join + " none"} {
		if seen[what] == 0 {
			t.Errorf("no plan has %s: %v", what, seen)
		}
	}
}

// Two control planes did not finish their upgrades, and one of them still serves: the one that does not is finished first, wherever
// they are in the file. The other one would cost the quorum.
func TestTheControlPlaneThatIsDownIsFinishedFirst(t *testing.T) {
	for _, serving := range []string{"cp0", "cp1", "cp2"} {
		for _, down := range []string{"cp0", "cp1", "cp2"} {
			if serving == down {
				continue
			}
			in := site(oldVersion)
			for _, name := range []string{serving, down} {
				fact(in, name).Unfinished = "upgrade node"
			}
			fact(in, serving).Unfinished = "upgrade apply"
			view(in).Version = newVersion
			c := *view(in)
			c.Nodes, c.EtcdMembers = slices.Clone(c.Nodes), slices.Clone(c.EtcdMembers)
			for i, n := range c.Nodes {
				c.Nodes[i].Ready = n.Name != down
			}
			for i, m := range c.EtcdMembers {
				c.EtcdMembers[i].Healthy = m.Name != down
			}
			fact(in, down).Cluster = nil
			for _, a := range in.Answers {
				if a.Facts.Cluster != nil {
					a.Facts.Cluster = &c
				}
			}
			p, problems := plan.Make(in)
			if len(problems) > 0 {
				t.Fatalf("%s serves, %s is down: %+v", serving, down, problems)
			}
			i := slices.IndexFunc(p.Stages, func(st plan.Stage) bool { return st.Name == "upgrade control planes" })
			s := plan.RollState{Spec: in.Spec, Cluster: &c, Now: noon}
			if got := hosts(plan.Next(p.Stages[i], s)); !slices.Equal(got, []string{down}) {
				t.Errorf("%s serves, %s is down: first %q", serving, down, got)
			}
		}
	}
}

// A worker that joins again in this plan is up before the others of its group change: they are not held.
func TestWorkerThatJoinsAgainHoldsNothing(t *testing.T) {
	in := site(newVersion)
	in.Remove = true
	setVersion(in, "w1", oldVersion)
	fact(in, "w0").Node = nil // its disk was erased
	view(in).Nodes[3].Ready = false
	p, problems := plan.Make(in)
	if len(problems) > 0 || len(p.Rest) > 0 || !slices.Contains(lines(p), "upgrade worker: w1 upgrade node (drain)") {
		t.Errorf("%+v; %+v", problems, p)
	}
}

// A worker whose join did not finish is down until this plan finishes it. What precedes joins waits for that, and the plan announces it.
func TestUnfinishedJoinHoldsWhatPrecedesJoins(t *testing.T) {
	in := site(newVersion)
	in.Spec.Endpoint.Address = "new.site"
	fact(in, "w0").Unfinished = "join"
	view(in).Nodes[3].Ready = false
	p, problems := plan.Make(in)
	if len(problems) > 0 || slices.ContainsFunc(p.Stages, func(st plan.Stage) bool { return st.Name == "endpoint worker" }) || !slices.Contains(lines(p), "join workers: w0 join (none)") ||
		!slices.ContainsFunc(p.Rest, func(r plan.Rest) bool {
			return r.Outcome == "waiting" && r.What == "the join of w0 did not finish, and these change after it: endpoint worker: w1, w2"
		}) {
		t.Fatalf("%+v; %s", problems, text(p))
	}
	in = site(newVersion)
	fact(in, "w0").Unfinished = "join"
	view(in).Nodes[3].Ready = false
	setVersion(in, "w1", oldVersion) // after the join
	if p, problems = plan.Make(in); len(problems) > 0 || !slices.Contains(lines(p), "upgrade worker: w1 upgrade node (drain)") || len(p.Rest) > 0 {
		t.Errorf("%+v; %s", problems, text(p))
	}
}

// A worker that is down changes once: the stage that changes it first brings it back, and then it waits as the others do.
func TestWorkerThatIsDownChangesOnce(t *testing.T) {
	in := site(oldVersion)
	in.Spec.Endpoint.Address, in.Skip = "new.site", []string{"w0"}
	view(in).Nodes[3].Ready, view(in).Nodes[4].Ready = false, false
	p, problems := plan.Make(in)
	if len(problems) > 0 || !slices.Contains(lines(p), "endpoint worker: w1 endpoint node (restart)") || slices.ContainsFunc(p.Stages, func(st plan.Stage) bool { return st.Name == "upgrade worker" }) ||
		!strings.Contains(text(p), "w0 is down, so these do not change: upgrade worker: w1, w2") {
		t.Errorf("%+v; %s", problems, text(p))
	}
}
