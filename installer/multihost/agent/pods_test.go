package agent

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"airlift/installer/cluster/inventory"
	"airlift/installer/multihost/facts"
	_ "airlift/scripts/fixtures/seed"
)

// Each pod that a drain moves is in one group of its node, a pod without a controller in none. A workload that serves is only on a node if
// no other node has a pod of it.
func TestPodsOfNodes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		serves := map[string]bool{"shop/web": true, "shop/cart": true, "batch/job": false}
		var pods []inventory.Pod
		moves, bare := map[[2]string]int{}, 0
		nodes := map[string]map[string]bool{} // by workload
		for i := range rapid.IntRange(0, 12).Draw(t, "pods") {
			p := inventory.Pod{Name: fmt.Sprint("shop/p", i), Node: rapid.SampledFrom([]string{"w1", "w2"}).Draw(t, "node")}
			if w := rapid.SampledFrom([]string{"", "batch/job", "shop/cart", "shop/web"}).Draw(t, "workload"); w == "" {
				p.Bare = true
				bare++
			} else {
				p.Workload, p.Serves = w, serves[w]
				moves[[2]string{p.Node, w}]++
				if nodes[w] == nil {
					nodes[w] = map[string]bool{}
				}
				nodes[w][p.Node] = true
			}
			pods = append(pods, p)
		}
		c := &facts.Cluster{}
		addPods(c, slices.Clone(pods))
		groups := 0
		for node, list := range c.Pods {
			for _, g := range list {
				groups++
				if g.Pods != moves[[2]string{node, g.Workload}] || g.Only != (serves[g.Workload] && len(nodes[g.Workload]) == 1) {
					t.Errorf("%s: %+v of %+v", node, g, pods)
				}
			}
		}
		if got := len(c.BarePods["w1"]) + len(c.BarePods["w2"]); groups != len(moves) || got != bare {
			t.Errorf("%d groups, want %d; %d pods without a controller, want %d", groups, len(moves), got, bare)
		}
	})
}
