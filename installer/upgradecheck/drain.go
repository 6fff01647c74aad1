package upgradecheck

import (
	"slices"
	"strings"

	"airlift/installer/cluster/inventory"
	"airlift/installer/preflight"
)

// drains reports whether an upgrade drains a node. A control plane is not drained if no other node
// could run its pods: they keep running. A worker may not list the nodes, and is always drained.
func (t *Target) drains(node string) bool {
	if n, ok := t.nodeOf(node); ok && !n.ControlPlane {
		return t.Drain
	}
	return t.Drain && slices.ContainsFunc(t.nodes(), func(n inventory.Node) bool { return n.Open && n.Name != node })
}

// drain reports what a drain of the nodes meets. For plan these are all nodes, and problems of
// other nodes are warnings; apply and node drain only this one.
func (t *Target) drain() (found []preflight.Problem) {
	if t.Cluster == nil {
		return nil
	}
	const fix = "add replicas or change the budget, or leave the pods running: --drain=false"
	for _, b := range t.Cluster.Budgets {
		nodes := slices.DeleteFunc(slices.Clone(b.Nodes), func(n string) bool { return !t.drains(n) || n != t.NodeName && t.Command != Plan })
		if len(nodes) == 0 {
			continue
		}
		f := preflight.Warn("wait until more of its pods are Ready", "PodDisruptionBudget %s allows no eviction of %s now: %d pods are healthy, and %d must be. The drain of %s waits",
			b.Name, strings.Join(b.Pods, ", "), b.Healthy, b.Desired, strings.Join(nodes, ", "))
		if b.Never {
			f = preflight.Fail(fix, "PodDisruptionBudget %s never allows the eviction of %s: the drain of %s cannot end", b.Name, strings.Join(b.Pods, ", "), strings.Join(nodes, ", "))
			f[0].Warning = !slices.Contains(nodes, t.NodeName)
		}
		found = append(found, f...)
	}
	for _, p := range t.Cluster.Pods {
		if !t.drains(p.Node) || p.Node != t.NodeName && t.Command != Plan {
			continue
		}
		if p.Bare {
			f := preflight.Fail("delete it and create it again after the upgrade, or leave the pods running: --drain=false",
				"pod %s on %s has no controller that creates it again on another node: the upgrade of that node refuses to evict it", p.Name, p.Node)
			f[0].Warning = p.Node != t.NodeName
			found = append(found, f...)
		}
		if len(p.EmptyDirs) > 0 {
			found = append(found, preflight.Warn("save its data first, or leave the pods running: --drain=false", "pod %s on %s has emptyDir volumes (%s): the drain deletes their data", p.Name, p.Node, strings.Join(p.EmptyDirs, ", "))...)
		}
	}
	return found
}
