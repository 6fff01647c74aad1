package agent

import (
	"context"

	"airlift/installer/cluster"
	"airlift/internal/fault"
)

// Changed is what "cluster host nodes" did to one node: "+zone=a", "-rack", "+taint key=value:Effect", "-taint key:Effect".
type Changed struct {
	Name    string   `json:"name"`
	Changes []string `json:"changes"`
}

// SetNodes gives nodes their labels and taints. All are checked before the first write.
func SetNodes(ctx context.Context, client *cluster.Client, wanted []cluster.NodeMeta, dryRun bool) ([]Changed, error) {
	seen := map[string]bool{}
	for _, m := range wanted {
		if seen[m.Name] {
			return nil, fault.New(fault.Usage, "node %q is given twice", m.Name)
		}
		seen[m.Name] = true
		if err := m.Check(); err != nil {
			return nil, err
		}
	}
	list := []Changed{}
	for _, m := range wanted {
		changes, err := client.NodeObjects().SetMeta(ctx, m, dryRun)
		if err != nil {
			return nil, err
		}
		list = append(list, Changed{m.Name, changes})
	}
	return list, nil
}
