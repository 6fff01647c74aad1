package plan

import (
	"fmt"
	"slices"
	"strings"

	"airlift/fault"
	"airlift/multihost/facts"
	"airlift/multihost/spec"
)

// crowd returns the workers of a group that are down, and that none of these changes brings back, if they are as many as may be down:
// then no other worker of the group may change.
func (s *site) crowd(group string, changes func(host) bool) (down []string) {
	for _, h := range s.Spec.Hosts {
		n, found := s.nodes[h.Name]
		changed := s.leaves(h.Name) || slices.ContainsFunc(s.hosts, func(o host) bool { return o.Name == h.Name && (o.isNew() || changes(o)) })
		if h.Role == spec.Worker && h.Group == group && found && !n.Ready && !changed {
			down = append(down, h.Name)
		}
	}
	if len(down) < maxUnavailable(s.group(group).Roll, groupSize(s.Spec, group)) {
		return nil
	}
	return down
}

// hold takes the actions out of stages of workers that could not begin, because others of the group are down: apply would wait for
// them without an end. The next groups are held, too, so that none overtakes. Hosts that are down change nevertheless: that may bring
// them back. changes reports which hosts these stages and the ones before them change.
func (s *site) hold(stages []Stage, changes func(host) bool) (kept, held []Stage) {
	var down []string
	for _, st := range stages {
		if len(down) == 0 {
			down = s.crowd(st.Group, changes)
		}
		if len(down) == 0 {
			kept = append(kept, st)
			continue
		}
		r, later := roll{RollState{Spec: s.Spec, Cluster: s.cluster}, st}, st
		later.Actions = slices.DeleteFunc(slices.Clone(st.Actions), func(a Action) bool { return r.isDown(a.Host) })
		st.Actions = slices.DeleteFunc(slices.Clone(st.Actions), func(a Action) bool { return !r.isDown(a.Host) })
		if len(later.Actions) > 0 {
			st.Pause = false
			held = append(held, later)
		}
		if len(st.Actions) > 0 {
			kept = append(kept, st)
		}
	}
	if len(held) > 0 {
		var list []string
		for _, st := range held {
			list = append(list, fmt.Sprintf("%s: %s", st.Name, strings.Join(names(st.Actions), ", ")))
		}
		s.rest(fault.Held, downHint+"; or allow more at once: roll.maxUnavailable of its group", "%s down, so these do not change: %s", areDown(down), strings.Join(list, "; "))
	}
	return kept, held
}

// changes reports whether a stage with Roll changes a host.
func (s *site) changes(h host) bool {
	return s.needsEndpoint(h) || s.isConfigured(h) || s.follows(h) || s.needsUpgrade(h)
}

// opens reports whether pods of a control plane could run on another node. If not, its upgrade leaves them.
func (s *site) opens(h host) bool {
	return h.Role == spec.Worker || slices.ContainsFunc(s.cluster.Nodes, func(n facts.ClusterNode) bool {
		closed := func(taint string) bool { return !strings.HasSuffix(taint, ":PreferNoSchedule") }
		return n.Name != h.Name && n.Ready && !n.Unschedulable && !slices.ContainsFunc(n.Taints, closed)
	})
}

// windows lists the windows of the groups of a stage.
func (s *site) windows(st Stage) (list []string) {
	for _, g := range s.Spec.Groups {
		if g.Roll.Window != nil && slices.ContainsFunc(st.Actions, func(a Action) bool { return hostOf(s.Spec, a.Host).Group == g.Name }) {
			list = append(list, fmt.Sprintf("%s only %s", g.Name, g.Roll.Window))
		}
	}
	return list
}
