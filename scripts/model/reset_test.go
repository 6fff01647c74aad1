package model

import (
	"slices"
	"testing"
)

// TestUnfinishedReset: an interrupted reset has removed the etcd member of a control plane, and has left its files. No command works on there as if
// the node were whole, also one that would have nothing to do or that would wait for its API server. Reset finishes.
func TestUnfinishedReset(t *testing.T) {
	planes := Sequence{{Name: "init", Host: 1}, {Name: "join --control-plane", Host: 2}, {Name: "join --control-plane", Host: 3}}
	reset := Command{Name: "reset", Host: 2, Before: "flannel-v6.1", Left: true}
	const refused = ": [^=]*a reset of this host is not finished"
	prints(t, slices.Concat(planes, stage(3, "distribute"), Sequence{
		reset, {Name: "rotate-ca distribute", Host: 2}, {Name: endpointNode, Host: 2}, {Name: endpointApply, Host: 2}, {Name: reconfigureNode, Host: 2},
		{Name: registryEnable, Host: 2}, {Name: "upgrade node", Host: 2, File: 1}, {Name: "reset", Host: 2}, {Name: "rotate-ca distribute", Host: 2},
	}), "reset, crash[^=]*power", "distribute"+refused, "endpoint node"+refused, "endpoint apply"+refused, "reconfigure node"+refused,
		"registry enable"+refused, "upgrade node"+refused, "reset: <nil>", "distribute: this host is not a node of a cluster")
}
