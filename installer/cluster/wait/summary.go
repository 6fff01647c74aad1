package wait

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Summary shortens the lines of missingPods for the table of steps:
// "kube-proxy, coredns (2)". Pods are counted under the Deployment or DaemonSet
// that they are named after.
func Summary(missing []string) string {
	var names []string
	for _, line := range missing {
		name, _, _ := strings.Cut(line, ": ")
		names = append(names, name[strings.LastIndex(name, "/")+1:])
	}
	// A Deployment's name is shorter than the names of its pods, which begin with it.
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
