package model

import (
	"slices"
	"testing"
)

// TestHardened: a cluster gets the profile when it is created, or later. Nodes join, are removed, and join again with another address under the
// same name; an address that changes is recorded. API servers reach each kubelet (Site.reachesKubelets), no node gets an address of another one
// (World.approved), and reset removes the user etcd only where Airlift created it (Site.removed).
func TestHardened(t *testing.T) {
	planes := Sequence{{Name: "init", Host: 1}, {Name: "join --control-plane", Host: 2}, {Name: "join", Host: 5}}
	new := slices.Concat(Sequence{{Name: initHardened, Host: 1, Again: true}}, planes[1:])
	prints(t, slices.Concat(new, Sequence{
		{Name: "join --control-plane", Host: 3}, {Name: "join --control-plane", Host: 3, Again: true}, {Name: otherAddress, Host: 5}, {Name: recordAddress, Host: 1, Target: 5},
		{Name: nodeRemove, Host: 1, Target: 5}, {Name: "reset", Host: 5}, {Name: otherAddress, Host: 5}, {Name: "join", Host: 5, Again: true},
		{Name: "upgrade apply", Host: 1, File: 1}, {Name: renewAll, Host: 2}, {Name: "reset", Host: 3, Again: true}, {Name: "reset", Host: 2}, {Name: "reset --force", Host: 1},
	}), initHardened+", and again: <nil>", "join --control-plane: [^=]*getent passwd etcd", "join --control-plane, and again: <nil>", "node addresses host5: <nil>", "node remove host5: <nil>", "join, and again: <nil>",
		"upgrade apply: <nil>", "reset, and again: <nil>", "reset: <nil>", "reset --force: <nil>")
	follow := Sequence{{Name: reconfigureNode, Host: 2, Again: true}, {Name: reconfigureNode, Host: 5, Again: true}}
	prints(t, slices.Concat(planes, Sequence{{Name: harden, Host: 1}, {Name: harden, Host: 1, Again: true}}, follow, Sequence{{Name: harden, Host: 1}}, follow, Sequence{
		{Name: "join", Host: 4}, {Name: soften, Host: 1}}, follow, Sequence{{Name: soften, Host: 1}}, follow, Sequence{{Name: reconfigureUndo, Host: 2}, {Name: "reset", Host: 2}},
	), harden+": <nil>", "node, and again: <nil>", harden+": <nil>", "node, and again: <nil>", "join: <nil>", soften+": <nil>", "node, and again: <nil>", soften+": <nil>", "reset: <nil>")
	// After undo of the second run, another control plane verifies until it follows.
	prints(t, slices.Concat(planes, Sequence{{Name: harden, Host: 1}}, follow, Sequence{{Name: harden, Host: 1}}, follow, Sequence{{Name: reconfigureUndo, Host: 1}, {Name: reconfigureUndo, Host: 5}, {Name: reconfigureNode, Host: 2}}),
		"undo: <nil>", "host5: [^=]*undo: API servers verify the certificates of kubelets, or may still do so|undo: [^\n]*or may still do so", "node: <nil>")
	for n := 1; n < 80; n += 30 {
		prints(t, slices.Concat(planes[:2], Sequence{{Name: harden, Host: 1, Crash: n}, {Name: reconfigureNode, Host: 2, Crash: n}, {Name: harden, Host: 1, Crash: n}, {Name: reconfigureUndo, Host: 2, Crash: n}}))
	}
	for _, before := range []string{"systemd-sysusers, after the group", "/etc/group", "/etc/passwd"} {
		prints(t, Sequence{{Name: initHardened, Host: 1, Before: before}, {Name: "reset --force", Host: 1, Before: before, Again: true}}, initHardened+"[^=]*: <nil>", "reset --force[^=]*: <nil>")
	}
}

// TestCopiesInPlan: the plan of a change that gives etcd its user, or renews etcd's certificates after that, has the copies (asPlanned).
func TestCopiesInPlan(t *testing.T) {
	prints(t, Sequence{{Name: "init", Host: 1}, {Name: harden, Host: 1}, {Name: harden, Host: 1}, {Name: reconfigureWide, Host: 1}}, harden+": <nil>", reconfigureWide+": <nil>")
}

// TestDocumentKeepsProfile: only --profile none takes the profile away (once). The plan names the files that go (asPlanned).
func TestDocumentKeepsProfile(t *testing.T) {
	prints(t, Sequence{
		{Name: initHardened, Host: 1}, {Name: reconfigureWide, Host: 1, Again: true}, {Name: reconfigureLittle, Host: 1}, {Name: soften, Host: 1}, {Name: soften, Host: 1}, {Name: reconfigureWide, Host: 1},
	}, reconfigureWide+"[^=]*: <nil>", reconfigureLittle+": <nil>", soften+": <nil>", soften+": <nil>", reconfigureWide+": <nil>")
}

// TestRotateHardened: kubelets have certificates of the new CA before the old one is not trusted any more.
func TestRotateHardened(t *testing.T) {
	prints(t, slices.Concat(Sequence{{Name: initHardened, Host: 1}, {Name: "join --control-plane", Host: 2}, {Name: "join", Host: 5}}, stage(5, "distribute"), stage(5, "issue"), stage(5, "finish")))
}
