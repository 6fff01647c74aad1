package model

import (
	"flag"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestBalancer: Services get addresses of pools that change, and nodes answer for them that join, leave, lose their power and get another version.
// Site.checkBalancer has the rules.
func TestBalancer(t *testing.T) {
	prints(t, Sequence{
		{Name: "init", Host: 1}, {Name: poolsFew, Host: 1}, {Name: serviceAny, Host: 1}, {Name: "join", Host: 2}, {Name: "join --control-plane", Host: 3}, {Name: serviceAny, Host: 2}, {Name: serviceWants, Host: 3, File: 1},
		{Name: serviceGone, Host: 1}, {Name: poolsMany, Host: 1}, {Name: hostReboots, Host: 2}, {Name: "upgrade apply", Host: 1, File: 1}, {Name: "reset", Host: 2}, {Name: nodeCordon, Host: 3},
		{Name: nodeRemove, Host: 1, Target: 3}, {Name: poolsOverlap, Host: 1}, {Name: balancerRemove, Host: 1}, {Name: balancerApply, Host: 1, File: 1}, {Name: poolsFew, Host: 1}, {Name: "reset", Host: 1},
	}, "init: <nil>", "join: <nil>", "upgrade apply: <nil>", "reset: <nil>", "host3: <nil>", "remove load-balancer: <nil>", "with the load balancer: <nil>", "reset: <nil>")
	services := Sequence{{Name: "init", Host: 1}, {Name: "join", Host: 2}, {Name: "join", Host: 3}, {Name: poolsMany, Host: 1}, {Name: serviceAny, Host: 1}, {Name: serviceInPool, Host: 2}, {Name: serviceLocal, Host: 3}}
	// A backup has Services and Leases of the past; the nodes that stay have followed later ones.
	prints(t, slices.Concat(services, Sequence{
		{Name: "etcd snapshot", Host: 1}, {Name: serviceGone, Host: 1}, {Name: serviceWants, Host: 1, File: 1}, {Name: nodeAlone, Host: 2}, {Name: hostReboots, Host: 3}, {Name: "reset --force", Host: 1}, {Name: "etcd restore", Host: 1},
		{Name: serviceChanges, Host: 2}, {Name: leaseDamaged, Host: 1}, {Name: balancerUndo, Host: 1}, {Name: balancerApply, Host: 1}, {Name: poolsFew, Host: 1},
	}), "reset --force: <nil>", "etcd restore: <nil>", "deleted: <nil>", "undo load-balancer: <nil>", "with the load balancer: <nil>")
	for n := 1; n < 20; n += 4 { // the add-on is removed and applied again, also in between
		prints(t, slices.Concat(services, Sequence{{Name: balancerRemove, Host: 1, Crash: n}, {Name: balancerApply, Host: 1, Crash: n}, {Name: poolsMoved, Host: 1}, {Name: "reset", Host: 2, Crash: n}}),
			"remove load-balancer[^=]*: <nil>", "with the load balancer[^=]*: <nil>", "reset[^=]*: <nil>")
	}
}

// balancerSequences draws sequences at sites with the load balancer and with workers, most of which concern it.
func balancerSequences() *rapid.Generator[Sequence] {
	return rapid.Custom(func(rt *rapid.T) Sequence {
		site := rapid.SampledFrom([][]string{{"init", "join"}, {"init", "join", "join"}, {"init", "join --control-plane", "join --control-plane", "join", "join"}}).Draw(rt, "site")
		names := slices.Concat(balancerCommands, balancerCommands, []string{
			"join", "join", "join --control-plane", "reset", "reset", "kubectl delete node", nodeRemove, nodeRemove, "upgrade apply", "upgrade apply", "upgrade node", "upgrade undo", "etcd snapshot", "etcd restore", "the way back",
			endpointApply, endpointNode, endpointUndo, endpointMoves, otherAddress, claimAddress, "the API server is lost", renewAll, "rotate-ca distribute", "rotate-ca issue", otherTool, adoptNode, disownNode, reconfigureLittle,
		})
		var list Sequence
		for i, name := range site {
			list = append(list, Command{Name: name, Host: i + 1})
		}
		list = append(list, Command{Name: poolsMany, Host: 1}, Command{Name: serviceAny, Host: 1})
		for _, c := range rapid.SliceOfN(drawn(names, len(site)), 5, 15).Draw(rt, "then") {
			c.Days = min(c.Days, 1) // no certificate expires
			list = append(list, c)
		}
		return list
	})
}

// TestBalancerSequences draws sequences with the load balancer.
func TestBalancerSequences(t *testing.T) {
	files := bundles(t)
	if checks := flag.Lookup("rapid.checks").Value; checks.String() == "10" { // nobody asked for more
		defer func() { _ = checks.Set("10") }()
		if err := checks.Set("3"); err != nil {
			t.Fatal(err)
		}
	}
	began, played := time.Now(), 0
	rapid.Check(t, func(rt *rapid.T) {
		list := balancerSequences().Draw(rt, "sequence")
		_, err := play(t, files, list)
		if played++; err != nil {
			rt.Fatalf("%s\n\nviolation: %v", list, err)
		}
	})
	t.Logf("%d sequences in %s", played, time.Since(began).Round(time.Second))
}
