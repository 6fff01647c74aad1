package plan_test

import (
	"testing"

	"airlift/multihost/facts"
	"airlift/multihost/plan"
)

// A machine at the address of a Node that leaves is reset only if it is that node, or was it until a removal was interrupted.
func TestIsHostOf(t *testing.T) {
	for name, c := range map[string]struct {
		facts facts.Facts
		want  bool
	}{
		"the node":                           {facts.Facts{Hostname: "other", Node: &facts.Node{Name: "w1"}}, true},
		"another node":                       {facts.Facts{Hostname: "w1", Node: &facts.Node{Name: "w2"}}, false},
		"the node after its reset":           {facts.Facts{Hostname: "w1"}, true},
		"in the middle of its reset":         {facts.Facts{Hostname: "w1", Unfinished: "reset"}, true},
		"another machine":                    {facts.Facts{Hostname: "w2"}, false},
		"a new cluster begins there":         {facts.Facts{Hostname: "w1", Unfinished: "init"}, false},
		"it joins another cluster":           {facts.Facts{Hostname: "w1", Unfinished: "join"}, false},
		"files of another tool":              {facts.Facts{Hostname: "w1", Leftovers: []string{"/etc/rancher"}}, false},
		"files of another tool, and a reset": {facts.Facts{Hostname: "w1", Leftovers: []string{"/etc/rancher"}, Unfinished: "reset"}, false},
	} {
		if got := plan.IsHostOf(&c.facts, "w1"); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
