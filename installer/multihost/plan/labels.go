package plan

import (
	"slices"
	"strings"

	"airlift/installer/multihost/facts"
	"airlift/installer/multihost/spec"
)

// controlPlaneTaint is what kubeadm gives a control plane without nodeRegistration.taints.
const controlPlaneTaint = "node-role.kubernetes.io/control-plane:NoSchedule"

// labels returns the stage for labels and taints, of new nodes too: they have only kubeadm's.
func (s *site) labels() Stage {
	st := Stage{Name: "labels and taints", Limit: s.Parallel}
	for _, h := range s.hosts {
		n, found := s.nodes[h.Name]
		if !found && h.Role == spec.ControlPlane {
			n.Taints = []string{controlPlaneTaint}
		}
		if changes := nodeChanges(h.Host, n); len(changes) > 0 {
			effect := None
			if slices.ContainsFunc(changes, func(c string) bool { return strings.HasPrefix(c, "+") && strings.HasSuffix(c, ":NoExecute") }) {
				effect = Drain
			}
			st.Actions = append(st.Actions, Action{Host: h.Name, Verb: NodeMeta, Why: "labels or taints differ", Effect: effect, Changes: changes})
		}
	}
	return st
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
	want := slices.Sorted(slices.Values(h.Taints))
	managed := n.ManagedTaints
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
		wanted := slices.ContainsFunc(want, func(w string) bool { return identity(w) == identity(t) })
		if slices.Contains(managed, identity(t)) && !wanted {
			changes = append(changes, "-taint "+identity(t))
		}
	}
	return changes
}

// identity returns key:Effect of key=value:Effect.
func identity(taint string) string {
	rest, effect, _ := strings.Cut(taint, ":")
	key, _, _ := strings.Cut(rest, "=")
	return key + ":" + effect
}
