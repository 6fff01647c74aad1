package model

import (
	"math/rand"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"
)

// A setting is where a command has something to do: what runs before it, and its host. Without a host, it is the first one.
type setting struct {
	before Sequence
	host   int
	target int
}

// threePlanes is a site with two control planes and a worker.
var threePlanes = Sequence{{Name: "init", Host: 1}, {Name: "join --control-plane", Host: 2}, {Name: "join", Host: 3}}

// settings are those of commands that need more than threePlanes, or another host. Others run on the first host of threePlanes.
var settings = map[string]setting{
	"init":                 {before: Sequence{}},
	"join":                 {before: threePlanes[:2], host: 3},
	"join --control-plane": {before: threePlanes[:1], host: 2},
	"upgrade node":         {before: Sequence{{Name: "upgrade apply", Host: 1, File: 1}}, host: 2},
	"upgrade undo":         {before: Sequence{{Name: "upgrade apply", Host: 1, File: 1}}},
	"the way back":         {before: Sequence{{Name: "upgrade apply", Host: 1, File: 1}}},
	reconfigureUndo:        {before: Sequence{{Name: reconfigureWide, Host: 1}}},
	reconfigureEncrypt:     {before: Sequence{{Name: reconfigureKey, Host: 1}, {Name: reconfigureNode, Host: 2}}},
	reconfigureNode:        {before: Sequence{{Name: reconfigureWide, Host: 1}}, host: 2},
	endpointNode:           {before: Sequence{{Name: endpointApply, Host: 1}}, host: 2},
	endpointUndo:           {before: Sequence{{Name: endpointApply, Host: 1}}},
	"rotate-ca issue":      {before: stage(3, "distribute")},
	"rotate-ca finish":     {before: slices.Concat(stage(3, "distribute"), stage(3, "issue"))},
	"rotate-ca cancel":     {before: Sequence{{Name: "rotate-ca distribute", Host: 1}}},
	registryDisable:        {before: Sequence{{Name: registryEnable, Host: 1}, {Name: registryEnable, Host: 2}}},
	registryNode:           {before: Sequence{{Name: registryEnable, Host: 1}}},
	siteApply:              {before: Sequence{{Name: siteImport, Host: 1}}},
	siteImportAll:          {before: Sequence{{Name: registryEnable, Host: 1}}},
	nodeRemove:             {target: 2},
	claimAddress:           {host: 3, target: 2},
	soften:                 {before: Sequence{{Name: harden, Host: 1}}},
	recordAddress:          {before: Sequence{{Name: harden, Host: 1}, {Name: otherAddress, Host: 3}}, target: 3},
	otherAddress:           {host: 3},
	"etcd restore":         {before: Sequence{{Name: "init", Host: 1}, {Name: "etcd snapshot", Host: 1}, {Name: "reset --force", Host: 1}}},
	packagesRemove:         {before: Sequence{{Name: packagesInstall, Host: 1}}},
	backupsElsewhere:       {before: Sequence{{Name: backupsTimer, Host: 1}}},
	backupsOff:             {before: Sequence{{Name: backupsTimer, Host: 1}}},
	backupsRun:             {before: Sequence{{Name: backupsTimer, Host: 1}}},
	balancerApply:          {before: Sequence{{Name: poolsMany, Host: 1}, {Name: serviceAny, Host: 1}, {Name: balancerRemove, Host: 1}}},
	balancerUndo:           {before: Sequence{{Name: balancerRemove, Host: 1}, {Name: balancerApply, Host: 1}, {Name: poolsMany, Host: 1}, {Name: serviceAny, Host: 1}}},
	balancerRemove:         {before: Sequence{{Name: poolsMany, Host: 1}, {Name: serviceAny, Host: 1}}},
	backupRestore:          {before: Sequence{{Name: "init", Host: 1}, {Name: backupOnce, Host: 1}, {Name: "reset --force", Host: 1}}},
	adoptNode:              {before: Sequence{{Name: otherTool, Host: 1}, {Name: otherTool, Host: 2}}},
	disownNode:             {before: Sequence{{Name: otherTool, Host: 1}, {Name: adoptNode, Host: 1}}},
	seedBoots:              {before: Sequence{}},
	seedEnd:                {before: Sequence{{Name: seedBoots, Host: 1}}},
	resetRemoveNode:        {before: Sequence{{Name: otherTool, Host: 1}, {Name: adoptNode, Host: 1}}},
}

// pairNames are the commands that are interrupted, and that follow such a command.
var pairNames = slices.Compact(slices.Sorted(slices.Values(slices.Concat([]string{"rotate-ca finish", registryNode}, adoptCommands, backupCommands, []string{packagesInstall, packagesRemove, seedBoots, seedEnd, balancerApply, balancerUndo, balancerRemove}))))

// setup returns the sequence before a command, and the command.
func setup(name string) (Sequence, Command) {
	s := settings[name]
	list := slices.Clone(threePlanes)
	switch {
	case s.before != nil && (len(s.before) == 0 || s.before[0].Name == "init" || s.before[0].Name == seedBoots): // it has a site of its own
		list = slices.Clone(s.before)
	default:
		list = append(list, s.before...)
	}
	c := Command{Name: name, Host: max(s.host, 1), Target: s.target}
	if name == "upgrade apply" || name == "upgrade node" {
		c.File = 1
	}
	return list, c
}

// TestPairs interrupts each command before one of its changes, and lets each other one follow on the same host, which finds what the first one
// left. Then the interrupted command runs again. MODEL_PAIRS is how many pairs are drawn; with "all", each pair that can occur must have been
// reached.
func TestPairs(t *testing.T) {
	files := bundles(t)
	var pairs [][2]string
	for _, first := range pairNames {
		for _, next := range pairNames {
			pairs = append(pairs, [2]string{first, next})
		}
	}
	seed := time.Now().UnixNano()
	if n, err := strconv.ParseInt(os.Getenv("AIRLIFT_SEED"), 10, 64); err == nil {
		seed = n
	}
	draw := rand.New(rand.NewSource(seed))
	draw.Shuffle(len(pairs), func(i, j int) { pairs[i], pairs[j] = pairs[j], pairs[i] })
	all := os.Getenv("MODEL_PAIRS") == "all"
	if n, err := strconv.Atoi(os.Getenv("MODEL_PAIRS")); err == nil {
		pairs = pairs[:min(n, len(pairs))]
	} else if !all {
		pairs = pairs[:4]
	}
	changes := map[string]int{} // of each command
	began, unreached := time.Now(), 0
	for _, p := range pairs {
		before, first := setup(p[0])
		if _, known := changes[p[0]]; !known {
			site, err := play(t, files, append(slices.Clone(before), first))
			if err != nil {
				t.Fatalf("seed %d: %s: %v", seed, p[0], err)
			}
			changes[p[0]] = site.lastChanges
		}
		if changes[p[0]] == 0 { // it changes nothing that can be interrupted
			continue
		}
		first.Crash, first.Left = 1+draw.Intn(changes[p[0]]), true
		again := first
		again.Crash, again.Left = 0, false
		next := Command{Name: p[1], Host: first.Host, Target: first.Host%3 + 1, File: draw.Intn(len(Versions))}
		list := append(before, first, next, again)
		if _, err := play(t, files, list); err != nil {
			t.Errorf("seed %d\n%s\n\nviolation: %v", seed, list, err)
			if !all {
				return
			}
		}
		if !Reached.hasPair(p[0], p[1]) && cannotFollow(p[0], p[1]) == "" {
			unreached++
			t.Logf("%s, then %s, did not occur", p[0], p[1])
		}
	}
	if all && unreached > 0 {
		t.Errorf("%d pairs that can occur did not", unreached)
	}
	t.Logf("seed %d: %d of %d pairs in %s", seed, len(pairs), len(pairNames)*len(pairNames), time.Since(began).Round(time.Second))
}
