package plan

import (
	"fmt"
	"slices"
	"strings"

	"airlift/installer/multihost/spec"
	"airlift/internal/fault"
)

// crowd returns the workers of a group that are down, and that none of these changes brings back, if they are as many as may be down:
// then no other worker of the group may change. One that is lost leaves before.
func (s *site) crowd(group string, changes func(host) bool) (down []string) {
	for _, h := range s.Spec.Hosts {
		n, found := s.nodes[h.Name]
		own, used := s.find(h.Name)
		changed := s.leaves(h.Name) || used && changes(own)
		if h.Role == spec.Worker && h.Group == group && found && !n.Ready && !changed {
			down = append(down, h.Name)
		}
	}
	if len(down) < maxUnavailable(groupOf(s.Spec, group).Roll, groupSize(s.Spec, group)) {
		return nil
	}
	return down
}

// hold takes the actions out of stages of workers that could not begin, because others of the group are down: apply would wait for
// them without an end. The next groups are held, too, so that none overtakes. Hosts that are down change nevertheless, because that may
// bring them back, but only once: then they are as the others. changes reports which hosts these stages and the ones before them change,
// and after are the stages that follow, and are held with these.
func (s *site) hold(stages []Stage, changes func(host) bool, after ...Stage) (kept, held []Stage) {
	var down []string
	defer func() {
		for _, st := range kept {
			s.changed = append(s.changed, names(st.Actions)...)
		}
	}()
	for _, st := range stages {
		if len(down) == 0 {
			down = s.crowd(st.Group, changes)
		}
		if len(down) == 0 {
			kept = append(kept, st)
			continue
		}
		r := roll{RollState{Spec: s.Spec, Cluster: s.cluster}, st}
		brings, later := split(st, func(a Action) bool { return r.isDown(a.Host) && !slices.Contains(s.changed, a.Host) })
		kept, held = append(kept, brings...), append(held, later...)
		s.down = append(s.down, down...)
		for _, st := range brings {
			s.down = append(s.down, names(st.Actions)...)
		}
	}
	if len(held) > 0 {
		held = append(held, after...)
		s.restHeld(down, held)
	}
	return kept, held
}

// restHeld adds what is held by workers that are down. This plan brings back those whose join it finishes.
func (s *site) restHeld(down []string, held []Stage) {
	var list []string
	for _, st := range held {
		list = append(list, fmt.Sprintf("%s: %s", st.Name, strings.Join(names(st.Actions), ", ")))
	}
	what := strings.Join(list, "; ")
	joins := func(name string) bool { h, used := s.find(name); return used && h.isNew() }
	if len(filter(down, joins)) == len(down) {
		s.rest(fault.Waiting, "run the same command again", "the join of %s did not finish, and these change after it: %s", strings.Join(down, ", "), what)
		return
	}
	s.rest(fault.Held, downHint+"; or allow more at once: roll.maxUnavailable of its group", "%s down, so these do not change: %s", areDown(down), what)
}

// windows lists the windows of the groups of a stage.
func (s *site) windows(st Stage) (list []string) {
	if st.Repair {
		return nil
	}
	for _, g := range s.Spec.Groups {
		if g.Roll.Window != nil && slices.ContainsFunc(st.Actions, func(a Action) bool { return hostOf(s.Spec, a.Host).Group == g.Name }) {
			list = append(list, fmt.Sprintf("%s only %s", g.Name, g.Roll.Window))
		}
	}
	return list
}
