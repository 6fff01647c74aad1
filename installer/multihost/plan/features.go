package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"airlift/installer/multihost/facts"
	"airlift/installer/multihost/spec"
)

// A feature is one thing in which a host may differ from the file. It returns the action that ends the difference, with its reason and
// its effect, or nil. Stages, holds and refusals are computed from these actions; the function commands has the command of an action.
type feature func(host) *Action

// some reports whether a host differs in one of several features.
func some(features ...feature) func(host) bool {
	return func(h host) bool {
		return slices.ContainsFunc(features, func(f feature) bool { return f(h) != nil })
	}
}

// enter makes a host a node: by init or by join.
func (s *site) enter(h host) *Action {
	if !h.isNew() {
		return nil
	}
	a := &Action{Host: h.Name, Verb: Join, To: s.Version, Why: "is not a node yet", Effect: None}
	if h.Name == s.leader && s.cluster == nil || h.began(Init) {
		a.Verb, a.Why = Init, "there is no cluster yet"
	}
	if h.Unfinished != "" {
		a.Why = fmt.Sprintf("did not finish %q", h.Unfinished)
	}
	return a
}

// enters is enter by one of the verbs.
func (s *site) enters(verb string) feature {
	return func(h host) *Action {
		if a := s.enter(h); a != nil && a.Verb == verb {
			return a
		}
		return nil
	}
}

// upgrade gives a node the version of the file, or finishes its upgrade.
func (s *site) upgrade(h host) *Action {
	n := s.nodes[h.Name]
	if s.cluster == nil || h.isNew() || h.Node.Version == s.Version && n.Version == s.Version && !h.began("upgrade") && !h.upgrading() {
		return nil
	}
	a := &Action{Host: h.Name, Verb: Upgrade, From: h.Node.Version, To: s.Version, Why: "has another version", Effect: Drain, Began: h.upgrading() || h.Node.Version == s.Version}
	switch {
	case h.upgrading():
		a.Why = "did not finish its upgrade"
	case a.Began: // its kubelet did not start again
		a.Why = fmt.Sprintf("its kubelet still runs %s", n.Version)
	}
	if opens, _ := s.opens(h); !s.Spec.Roll.Drain || s.cordoned(h) || !opens {
		a.Effect = Restart
	}
	return a
}

// unpack brings what an upgrade needs, while all runs on.
func (s *site) unpack(h host) *Action {
	a := s.upgrade(h)
	if a == nil || a.Began {
		return nil
	}
	return &Action{Host: h.Name, Verb: Unpack, From: a.From, To: s.Version, Why: "images and binaries first, next to the old ones", Effect: None}
}

// cordoned reports whether the node is unschedulable, and not by Airlift: it is neither drained nor uncordoned.
func (s *site) cordoned(h host) bool { return s.nodes[h.Name].Unschedulable && !h.Node.Cordoned }

// opens reports whether pods of a host that is upgraded could run on another node. If not, the upgrade of a control plane leaves them.
// down are the nodes that could take them if they were Ready.
func (s *site) opens(h host) (opens bool, down []string) {
	if h.Role == spec.Worker {
		return true, nil
	}
	for _, n := range s.cluster.Nodes {
		closed := func(taint string) bool { return !strings.HasSuffix(taint, ":PreferNoSchedule") }
		switch {
		case n.Name == h.Name || n.Unschedulable || slices.ContainsFunc(n.Taints, closed):
		case n.Ready:
			return true, nil
		default:
			down = append(down, n.Name)
		}
	}
	return false, down
}

// registry enables the embedded registry on a node.
func (s *site) registry(h host) *Action {
	if s.cluster == nil || !s.Spec.EmbeddedRegistry || h.isNew() || !h.Node.NoRegistry && s.cluster.EmbeddedRegistry && (!h.began("registry") || h.began(Mirrors)) {
		return nil
	}
	return &Action{Host: h.Name, Verb: Registry, Why: "has no embedded registry yet", Effect: Reload}
}

// endpoint lets a node use the endpoint of the file, or the last one.
func (s *site) endpoint(h host) *Action {
	n := s.nodes[h.Name]
	if s.cluster == nil || h.isNew() || !s.endpointDiffers() && !h.began("endpoint") && (!n.EndpointBehind || n.EndpointServes && !s.endpointEnds()) {
		return nil
	}
	a := &Action{Host: h.Name, Verb: Endpoint, Why: "has not followed the last change of the endpoint", Effect: Restart, Began: h.began("endpoint")}
	if s.endpointDiffers() {
		a.Why = "the endpoint of the API changes"
		if h.Role == spec.ControlPlane {
			a.Verb = EndpointApply
		}
	}
	return a
}

// controlPlaneTaint is what kubeadm gives a control plane without nodeRegistration.taints.
const controlPlaneTaint = "node-role.kubernetes.io/control-plane:NoSchedule"

// labels gives a node its labels and taints, a new one, too: it has only kubeadm's.
func (s *site) labels(h host) *Action {
	n, found := s.nodes[h.Name]
	if !found && h.Role == spec.ControlPlane {
		n.Taints = []string{controlPlaneTaint}
	}
	a := &Action{Host: h.Name, Verb: NodeMeta, Why: "labels or taints differ", Effect: None, Changes: nodeChanges(h.Host, n)}
	if len(a.Changes) == 0 {
		return nil
	}
	if slices.ContainsFunc(a.Changes, func(c string) bool { return strings.HasPrefix(c, "+") && strings.HasSuffix(c, ":NoExecute") }) {
		a.Effect = Drain
	}
	return a
}

// nodeChanges returns what the agent's "cluster host nodes" would change. Labels and taints that neither the file nor an
// earlier apply has stay.
func nodeChanges(h spec.Host, n facts.ClusterNode) (changes []string) {
	for _, k := range sortedKeys(h.Labels) {
		if v, found := n.Labels[k]; !found || v != h.Labels[k] {
			changes = append(changes, "+"+k+"="+h.Labels[k])
		}
	}
	for _, k := range slices.Sorted(slices.Values(n.ManagedLabels)) {
		_, wanted := h.Labels[k]
		if _, found := n.Labels[k]; found && !wanted {
			changes = append(changes, "-"+k)
		}
	}
	want, managed := slices.Sorted(slices.Values(h.Taints)), n.ManagedTaints
	if h.Role == spec.ControlPlane && h.Taints != nil {
		managed = append(slices.Clone(managed), controlPlaneTaint)
	} else if h.Role == spec.ControlPlane && (slices.Contains(managed, controlPlaneTaint) || slices.Contains(managed, "-"+controlPlaneTaint)) {
		want = append(want, controlPlaneTaint)
	}
	for _, t := range want {
		if !slices.Contains(n.Taints, t) {
			changes = append(changes, "+taint "+t)
		}
	}
	for _, t := range slices.Sorted(slices.Values(n.Taints)) {
		wanted := slices.ContainsFunc(want, func(w string) bool { return spec.TaintKey(w) == spec.TaintKey(t) })
		if slices.Contains(managed, spec.TaintKey(t)) && !wanted {
			changes = append(changes, "-taint "+spec.TaintKey(t))
		}
	}
	return changes
}

// remove is the action for a leaver.
func (s *site) remove(l leaver) Action {
	a := Action{Host: l.name, Verb: RemoveOff, Why: "is not in cluster.yaml; its host is not reset", Effect: None}
	if l.ready {
		a.Effect = Drain
	}
	switch {
	case l.lost:
		a.Why = "its host is no node any more, and joins again"
	case !l.answers && len(s.sharing(l.name)) > 0:
		a.Why += ": it is not known which host it is, because its address is also reported by " + strings.Join(s.sharing(l.name), ", ")
	case l.answers:
		a.Verb, a.Why, a.Effect, a.Adopted = Remove, "is not in cluster.yaml", Drain, l.adopted
		if at := AddressOf(s.nodes[l.name], s.cluster, s.Spec.Hosts); at != "" {
			a.Why += "; its host is " + at
		}
		if l.adopted {
			a.Why += "; another tool made its node, which is removed, too (reset --remove-node)"
		}
	}
	if bare := s.barePods(l.name); len(bare) > 0 {
		a.Changes = []string{"deletes pods that nothing creates again: " + strings.Join(bare, ", ")} // as "node remove" prints it
	}
	return a
}

// barePods returns the pods of a node that no controller creates again.
func (s *site) barePods(node string) []string {
	return slices.Sorted(slices.Values(s.cluster.BarePods[node]))
}

// each returns a stage with what hosts lack of a feature.
func each(name string, limit int, hosts []host, f feature) Stage {
	st := Stage{Name: name, Limit: limit}
	for _, h := range hosts {
		if a := f(h); a != nil {
			st.Actions = append(st.Actions, *a)
		}
	}
	return st
}

// unfinishedFirst sorts hosts whose last command did not end to the front: they may be down.
func unfinishedFirst(hosts []host) []host {
	return slices.SortedStableFunc(slices.Values(hosts), firstIf(func(h host) bool { return h.Unfinished != "" }))
}

// onPlanes returns a stage in which control planes, which serve, change one by one. What was begun comes first, as Next has it.
func (s *site) onPlanes(name string, f feature) Stage {
	st := each(name, 1, s.planes, f)
	st.Roll = true
	slices.SortStableFunc(st.Actions, firstIf(func(a Action) bool { return a.Began }))
	return s.inGroup(st)
}

// inGroup sets the group of a stage, if all its hosts have the same.
func (s *site) inGroup(st Stage) Stage {
	if groups := GroupsOf(s.Spec, names(st.Actions)); len(groups) == 1 {
		st.Group = groups[0]
	}
	return st
}

// roll returns a stage for each group of workers that lacks a feature, in the order of the roll.
func (s *site) roll(prefix string, f feature) (list []Stage) {
	for _, g := range s.order() {
		st := each(prefix+g.Name, maxUnavailable(g.Roll, groupSize(s.Spec, g.Name)), filter(s.workers, func(h host) bool { return h.Group == g.Name }), f)
		st.Group, st.Roll = g.Name, true
		if len(st.Actions) > 0 {
			list = append(list, st)
		}
	}
	return list
}

// order returns the groups in the order of the roll.
func (s *site) order() []spec.Group {
	return slices.SortedStableFunc(slices.Values(s.Spec.Groups), func(a, b spec.Group) int { return cmp.Compare(s.rank(a.Name), s.rank(b.Name)) })
}

// rank returns the place of a group in roll.order.
func (s *site) rank(group string) int {
	if i := slices.Index(s.Spec.Roll.Order, group); i >= 0 {
		return i
	}
	return len(s.Spec.Roll.Order)
}
