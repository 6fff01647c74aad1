package model

import (
	"flag"
	"fmt"
	"math/rand"
	"os"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// boot returns boots of hosts in an order.
func boots(hosts ...int) (list Sequence) {
	for _, h := range hosts {
		list = append(list, Command{Name: seedBoots, Host: h})
	}
	return list
}

func and(lists ...any) (all Sequence) {
	for _, l := range lists {
		switch l := l.(type) {
		case Sequence:
			all = append(all, l...)
		case Command:
			all = append(all, l)
		}
	}
	return all
}

// TestSeeds: hosts boot from one seed in any order. Site.checkSeeds has the rules.
func TestSeeds(t *testing.T) {
	done := Command{Name: seedDone, Host: 1}
	on := func(name string, host int) Command { return Command{Name: name, Host: host} }
	for i, c := range []printed{
		{and(boots(3, 4, 1, 2), done, on(seedBoots, 2)), []string{"it ends: <nil>", "with a seed: <nil>"}},
		{and(on(editHosts, 3), on(editMirrors, 1), on(editMirrors, 1), on(editMirrors, 1), on(editProfile, 1), on(editLabels, 2), boots(3, 2, 1, 4), done), []string{"in no row of the seed", "it ends: <nil>"}},
		{and(boots(2), Command{Name: seedBoots, Host: 1, Days: 1}, on(seedBoots, 2), on("init", 1), on("join", 2)), []string{"the seed has expired", "with a seed: [^\n]*has ended before this host was done", "init: <nil>", "join: <nil>"}},
		{and(boots(1), on(seedClaims, 1), boots(2), on(seedEnd, 1), boots(3), on("join", 3), on(seedRun, 3)), []string{"seed end: <nil>", "with a seed: [^\n]*has ended before this host was done", "join: <nil>", "DIRECTORY: [^=]*already"}},
		{and(boots(1, 2), on("reset", 2), boots(2), on(seedGiven, 2), boots(3), done), []string{"reset: <nil>", "data again: <nil>", "it ends: <nil>"}},
		{and(boots(1, 2), Command{Name: "upgrade apply", Host: 1, File: 1}, boots(3), boots(4), done), nil},
		{and(boots(1), on(clusterApply, 1), on(clusterApply, 3), boots(2, 3), done, on(clusterApply, 1)), nil},
		{and(boots(3), on(clusterApply, 1), boots(1), boots(2)), nil},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) { prints(t, c.list, c.want...) })
	}
}

// TestSeedPowerCuts: a host loses its power before a change, or its disk is full, and the site becomes what it would be without that.
func TestSeedPowerCuts(t *testing.T) {
	draw := rand.New(rand.NewSource(1))
	runs := 3
	if os.Getenv("MODEL_KILLS") != "" {
		runs = 300
	}
	for range runs {
		list := Sequence{}
		for _, h := range draw.Perm(3) {
			list = append(list, Command{Name: seedBoots, Host: h + 1, Crash: draw.Intn(200), Full: draw.Intn(4) == 0, Left: draw.Intn(3) == 0})
		}
		prints(t, append(list, Command{Name: seedDone, Host: 1}), "it ends: <nil>")
	}
}

// TestSeedSequences plays drawn sequences of sites with a seed; TestSequences draws some, too.
func TestSeedSequences(t *testing.T) {
	files := bundles(t)
	if checks := flag.Lookup("rapid.checks").Value; checks.String() == "10" { // nobody asked for more
		defer func() { _ = checks.Set("10") }()
		if err := checks.Set("3"); err != nil {
			t.Fatal(err)
		}
	}
	began, played, runs, crashes := time.Now(), 0, 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		list := seedSequences().Draw(rt, "sequence")
		if os.Getenv("MODEL_VERBOSE") != "" {
			fmt.Fprintf(os.Stderr, "%s %d\n%s\n", time.Since(began), played, list)
		}
		site, err := play(t, files, list)
		played, runs, crashes = played+1, runs+site.Runs, crashes+site.Crashes
		if err != nil {
			rt.Fatalf("%s\n\nviolation: %v", list, err)
		}
	})
	t.Logf("%d sequences, %d commands, %d crashes in %s", played, runs, crashes, time.Since(began).Round(time.Second))
}
