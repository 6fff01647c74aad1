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
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// gate returns what the last batch of a roll still has to pass; nil if there is nothing.
func (s *site) gate() *facts.Gate {
	if s.cluster == nil {
		return nil
	}
	return s.cluster.Gate
}

// gated puts what the last batch has to pass before all that this plan would do next. Only these come first: Nodes that are lost,
// workers of the batch that leave, and what interrupted hosts of the batch: without its end, they do not get healthy.
func (s *site) gated(stages []Stage) []Stage {
	g := s.gate()
	if g == nil {
		return stages
	}
	lost := slices.DeleteFunc(slices.Clone(stages), func(st Stage) bool { return st.Name != lostHosts })
	if skipped := s.skippedOf(g); len(skipped) > 0 {
		s.rests = slices.DeleteFunc(s.rests, func(r Rest) bool { return r.Outcome == fault.Paused.Word() || r.Outcome == fault.Waiting.Word() }) // to continue does not help
		s.rest(fault.Held, fmt.Sprintf("run apply without --skip; or remove %s from cluster.yaml, and run ./install cluster apply --remove", strings.Join(skipped, ", ")),
			"the last batch (%s: %s) has not passed its checks, and %s skipped; nothing changes until it has", g.Stage, strings.Join(g.Hosts, ", "), areDown(skipped))
		return lost
	}
	passing := s.passing(g)
	first := lost // and workers of the batch that leave: the check may fail because of them
	var repairs, others []Stage
	for _, st := range stages[len(lost):] {
		if st.Name == keepsFile { // hosts of the batch may need it
			first = append(first, st)
			continue
		}
		if of := func(a Action) bool { return slices.Contains(g.Hosts, a.Host) }; st.Name == removeWorkers && slices.ContainsFunc(st.Actions, of) {
			bad := st
			bad.Actions = slices.DeleteFunc(slices.Clone(st.Actions), func(a Action) bool { return !of(a) })
			st.Actions = slices.DeleteFunc(slices.Clone(st.Actions), of)
			first = append(first, bad)
		}
		repair, rest := split(st, g.Hosts)
		if len(repair.Actions) > 0 {
			repairs = append(repairs, repair)
		}
		if len(rest.Actions) > 0 {
			others = append(others, rest)
		}
	}
	return slices.Concat(first, repairs, []Stage{passing}, others)
}

// repairs returns the parts of stages that finish what an earlier run began on the hosts of the last batch.
func (s *site) repairs(stages []Stage) (list []Stage) {
	if g := s.gate(); g != nil {
		for _, st := range stages {
			if repair, _ := split(st, g.Hosts); len(repair.Actions) > 0 {
				list = append(list, repair)
			}
		}
	}
	return list
}

// split separates the actions that finish what an earlier run began on these hosts. They wait for no window: a host may be drained.
func split(st Stage, hosts []string) (repair, rest Stage) {
	repair, rest = st, st
	repair.Actions, rest.Actions, repair.Repair = nil, nil, true
	for _, a := range st.Actions {
		unfinished := a.Began || a.From != "" && a.From == a.To // its kubelet did not start again
		if st.Roll && unfinished && slices.Contains(hosts, a.Host) {
			repair.Actions = append(repair.Actions, a)
		} else {
			rest.Actions = append(rest.Actions, a)
		}
	}
	return repair, rest
}

// passing returns the stage in which the last batch passes what it owes. A host that is no node of the cluster any more, or leaves in
// this plan, owes nothing.
func (s *site) passing(g *facts.Gate) Stage {
	var hosts []string
	for _, name := range g.Hosts {
		if _, found := s.nodes[name]; found && !s.leaves(name) {
			hosts = append(hosts, name)
		}
	}
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
func (s *site) skippedOf(g *facts.Gate) (names []string) {
	for _, name := range g.Hosts {
		if _, found := s.nodes[name]; found && s.skipped(name) {
			names = append(names, name)
		}
	}
	return names
}
