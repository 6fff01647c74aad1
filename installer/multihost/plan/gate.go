package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"airlift/installer/multihost/facts"
	"airlift/installer/multihost/spec"
	"airlift/internal/fault"
)

// Owed is what hosts of a batch have to pass before another host changes, by the rules of their groups.
type Owed struct {
	Hosts  []string      `json:"hosts"`            // their nodes and the pods on them are healthy
	Soak   time.Duration `json:"soak,omitempty"`   // for so long in a row
	Checks []string      `json:"checks,omitempty"` // groups whose check succeeds
}

// OwedBy returns what hosts have to pass, with the rules of groups.
func OwedBy(c *spec.Cluster, hosts, groups []string) Owed {
	o := Owed{Hosts: hosts}
	for _, g := range c.Groups {
		if !slices.Contains(groups, g.Name) {
			continue
		}
		o.Soak = max(o.Soak, g.Roll.Soak)
		if len(g.Roll.Check) > 0 {
			o.Checks = append(o.Checks, g.Name)
		}
	}
	return o
}

// GroupsOf returns the groups of hosts, each once.
func GroupsOf(c *spec.Cluster, hosts []string) (groups []string) {
	for _, name := range hosts {
		if g := hostOf(c, name).Group; g != "" && !slices.Contains(groups, g) {
			groups = append(groups, g)
		}
	}
	return groups
}

// String returns what is owed: "health, soak 10m, check of group canary".
func (o Owed) String() string {
	var list []string
	if len(o.Hosts) > 0 {
		list = append(list, "health")
	}
	if o.Soak > 0 {
		list = append(list, "soak "+short(o.Soak))
	}
	for _, g := range o.Checks {
		list = append(list, "check of group "+g)
	}
	if len(list) == 0 {
		return "nothing is left to check"
	}
	return strings.Join(list, ", ")
}

// short returns a duration without units that are zero: 10m for 10m0s.
func short(d time.Duration) string {
	return strings.Replace(strings.Replace(d.String(), "m0s", "m", 1), "h0m", "h", 1)
}

// gated puts what the last batch has to pass before all that this plan would do next. Only these come first: Nodes that are lost,
// workers of the batch that leave, and what interrupted hosts of the batch: without its end, they do not get healthy.
func (s *site) gated(stages []Stage) []Stage {
	g := s.gate
	if g == nil {
		return stages
	}
	lost := filter(stages, func(st Stage) bool { return st.Name == lostHosts })
	if skipped := s.skippedOf(g); len(skipped) > 0 {
		s.rests = filter(s.rests, func(r Rest) bool { return r.Outcome != fault.Paused.Word() && r.Outcome != fault.Waiting.Word() }) // to continue does not help
		s.rest(fault.Held, fmt.Sprintf("run apply without --skip; or remove %s from cluster.yaml, and run ./install cluster apply --remove", strings.Join(skipped, ", ")),
			"the last batch (%s: %s) has not passed its checks, and %s skipped; nothing changes until it has", g.Stage, strings.Join(g.Hosts, ", "), areDown(skipped))
		return lost
	}
	passing := []Stage{s.passing(g)}
	var first, repairs, others []Stage
	for _, st := range stages {
		switch {
		case st.Name == lostHosts, st.Name == keepsFile: // hosts of the batch may need it
			first = append(first, st)
		case st.Name == removeWorkers: // the check may fail because of the workers that this batch removes
			bad, rest := split(st, func(a Action) bool { return slices.Contains(g.Hosts, a.Host) })
			first, others = append(first, bad...), append(others, rest...)
		default:
			repair, rest := split(st, s.repairs(st))
			repairs, others = append(repairs, asRepairs(repair)...), append(others, rest...)
		}
	}
	return slices.Concat(first, repairs, passing, others)
}

// repairs reports which actions of a stage finish what an earlier run began on the hosts of the last batch. They wait for no window: a
// host may be drained.
func (s *site) repairs(st Stage) func(Action) bool {
	return func(a Action) bool {
		return s.gate != nil && st.Roll && a.Began && slices.Contains(s.gate.Hosts, a.Host)
	}
}

func asRepairs(stages []Stage) []Stage {
	for i := range stages {
		stages[i].Repair = true
	}
	return stages
}

// split separates the actions of a stage that are so. None, one or both of the parts are a stage.
func split(st Stage, is func(Action) bool) (those, others []Stage) {
	one, other := st, st
	one.Actions, other.Actions = filter(st.Actions, is), slices.DeleteFunc(slices.Clone(st.Actions), is)
	if len(one.Actions) > 0 {
		those = []Stage{one}
	}
	if len(other.Actions) > 0 {
		others = []Stage{other}
	}
	return those, others
}

// passing returns the stage in which the last batch passes what it owes. A host that is no node of the cluster any more, or leaves in
// this plan, owes nothing.
func (s *site) passing(g *facts.Gate) Stage {
	hosts := filter(g.Hosts, func(name string) bool { return s.isNode(name) && !s.leaves(name) })
	groups := slices.Concat(g.Groups, GroupsOf(s.Spec, g.Hosts))
	owed := OwedBy(s.Spec, hosts, groups)
	if len(hosts) == 0 {
		owed.Soak = 0 // of no host
	}
	for _, name := range g.Checks {
		if !slices.Contains(owed.Checks, name) {
			s.note("the last batch (%s) had to pass the check of group %s, which cluster.yaml does not have any more: it passes without it", strings.Join(g.Hosts, ", "), name)
		}
	}
	st := Stage{Name: lastBatch, Limit: 1, Owed: &owed}
	for _, name := range hosts {
		st.Actions = append(st.Actions, Action{Host: name, Verb: Pass, Why: owed.String() + " after " + g.Stage, Effect: None})
	}
	if len(hosts) == 0 {
		st.Actions = []Action{{Host: s.leader, Verb: Pass, Why: fmt.Sprintf("%s after %s; its hosts are gone: %s", owed, g.Stage, strings.Join(g.Hosts, ", ")), Effect: None}}
	}
	return st
}

// skippedOf returns the hosts of a gate that this run leaves alone and the cluster still has: they can pass nothing.
func (s *site) skippedOf(g *facts.Gate) []string {
	return filter(g.Hosts, func(name string) bool { return s.isNode(name) && s.skipped(name) })
}
