package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// briefly names what missing, the lines of missingPods, is about, in as few
// words as a table has room for: "kube-proxy, coredns (2)". Pods are counted
// with the Deployment or DaemonSet that gave them their name.
func briefly(missing []string) string {
	var names []string
	for _, line := range missing {
		name, _, _ := strings.Cut(line, ": ")
		names = append(names, name[strings.LastIndex(name, "/")+1:])
	}
	// A Deployment's name comes before those of its pods, which begin with it.
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(len(a), len(b)) })
	var kept []string
	pods := map[string]int{}
	for _, name := range names {
		i := slices.IndexFunc(kept, func(k string) bool { return strings.HasPrefix(name+"-", k+"-") })
		if i < 0 {
			kept = append(kept, name)
			continue
		}
		pods[kept[i]]++
	}
	for i, name := range kept {
		if n := pods[name]; n > 1 {
			kept[i] = fmt.Sprintf("%s (%d)", name, n)
		}
	}
	return strings.Join(kept, ", ")
}
