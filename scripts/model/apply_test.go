package model

import (
	"flag"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// clusterSequences draws sequences of 'cluster apply' with edits of cluster.yaml before each, and commands on single hosts between them.
func clusterSequences() *rapid.Generator[Sequence] {
	return rapid.Custom(func(rt *rapid.T) Sequence {
		hosts, file := rapid.IntRange(1, 5).Draw(rt, "hosts"), rapid.IntRange(0, 1).Draw(rt, "file")
		list := Sequence{{Name: clusterApply, Host: hosts, File: file}}
		host := func() int { return rapid.IntRange(1, hosts).Draw(rt, "host") }
		for range rapid.IntRange(1, 5).Draw(rt, "runs") {
			for range rapid.IntRange(0, 3).Draw(rt, "edits") {
				list = append(list, Command{Name: rapid.SampledFrom(yamlEdits).Draw(rt, "edit"), Host: host()})
			}
			if rapid.IntRange(0, 3).Draw(rt, "alone") == 1 {
				list = append(list, drawn(adoptCommands, hosts).Draw(rt, "command"))
			}
			file = min(len(Versions)-1, file+rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(rt, "newer"))
			c := Command{Name: rapid.SampledFrom([]string{clusterApply, clusterApply, clusterRemove, clusterSkip, clusterOff}).Draw(rt, "apply"), Host: host(), File: file}
			if rapid.Bool().Draw(rt, "disturbed") {
				c.Crash, c.Full = rapid.IntRange(1, rapid.SampledFrom([]int{20, 100, 500}).Draw(rt, "last")).Draw(rt, "change"), rapid.Bool().Draw(rt, "driver")
				c.Left = rapid.IntRange(0, 3).Draw(rt, "left") == 1
			}
			list = append(list, c)
		}
		return list
	})
}

// TestClusterSequences runs 'cluster apply' of the driver against the flows of the hosts.
func TestClusterSequences(t *testing.T) {
	files := bundles(t)
	if checks := flag.Lookup("rapid.checks").Value; checks.String() == "10" { // nobody asked for more, and one takes as long as three of the others
		defer func() { _ = checks.Set("10") }()
		if err := checks.Set("3"); err != nil {
			t.Fatal(err)
		}
	}
	began, played, runs, crashes := time.Now(), 0, 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		list := clusterSequences().Draw(rt, "sequence")
		site, err := play(t, files, list)
		played, runs, crashes = played+1, runs+site.Runs, crashes+site.Crashes
		if err != nil {
			rt.Fatalf("%s\n\nviolation: %v", list, err)
		}
	})
	took := time.Since(began)
	t.Logf("%d sequences, %d commands, %d crashes in %s: %.1f sequences per minute", played, runs, crashes, took.Round(time.Second), float64(played)/took.Minutes())
}

// TestCluster: a cluster is made, changed in each way that cluster.yaml has, made smaller and larger, and a driver and a host die meanwhile.
func TestCluster(t *testing.T) {
	edit := func(name string, host int) Command { return Command{Name: name, Host: host} }
	prints(t, Sequence{
		{Name: clusterApply, Host: 4}, edit(editLabels, 4), edit(editDocuments, 1), edit(editMirrors, 1), edit(editMirrors, 1), edit(editMirrors, 1), {Name: clusterApply, Host: 1, Crash: 30}, edit(editEndpoint, 1), {Name: clusterApply, Host: 1, Crash: 40, Full: true},
		edit(editHosts, 4), edit(editRenewal, 1), {Name: clusterRemove, Host: 1, File: 1}, edit(editRenewal, 1), edit(editMirrors, 1), edit(editRegistry, 1), {Name: clusterApply, Host: 1, File: 1},
	}, "cluster apply: <nil>", "crash at change 30: <nil>", "the driver dies at change 40: [^\n]*lost its power", "cluster apply: <nil>", "--remove: <nil>", "v1.37.1 cluster apply: <nil>")
}

// TestClusterHardens: a running cluster gets the profile and encrypted Secrets, loses both, and a driver and a host die meanwhile.
func TestClusterHardens(t *testing.T) {
	edit := func(name string) Command { return Command{Name: name, Host: 1} }
	prints(t, Sequence{
		{Name: clusterApply, Host: 4}, edit(editSecrets), edit(editProfile), {Name: clusterApply, Host: 1, Crash: 60}, {Name: clusterApply, Host: 1, Crash: 90, Full: true}, {Name: clusterApply, Host: 2},
		edit(editDocuments), edit(editSecrets), edit(editProfile), {Name: clusterApply, Host: 2, Crash: 80}, {Name: clusterApply, Host: 1},
		edit(editHosts), edit(editSecrets), {Name: clusterRemove, Host: 1},
	}, "cluster apply: <nil>", "cluster apply: <nil>", "cluster apply: <nil>")
}
