package model

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// A Coverage counts what sequences have reached.
type Coverage struct {
	mu sync.Mutex
	// ended has how often a command succeeded, was refused or failed, and was interrupted, by its name.
	ended map[string]*[3]int
	// steps has how often a step began, by "command: step".
	steps map[string]int
	// pairs has how often a command followed one that was interrupted on its host and did not run again, by both names.
	pairs map[[2]string]int
}

// Reached is what the sequences of this process have reached.
var Reached = Coverage{ended: map[string]*[3]int{}, steps: map[string]int{}, pairs: map[[2]string]int{}}

// step matches the line that the console prints for a step.
var step = regexp.MustCompile(`(?m)^\[ *\d+/\d+\] (\S+)`)

// count records a run of a command with its output. before is the command that was interrupted on the host, "" if none was.
func (c *Coverage) count(name, before, out string, disturbed bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended[name] == nil {
		c.ended[name] = new([3]int)
	}
	switch {
	case disturbed:
		c.ended[name][2]++
	case err != nil:
		c.ended[name][1]++
	default:
		c.ended[name][0]++
	}
	for _, m := range step.FindAllStringSubmatch(out, -1) {
		c.steps[name+": "+m[1]]++
	}
	if before != "" {
		c.pairs[[2]string{before, name}]++
	}
}

// cannotFollow returns why a command never follows an interrupted one on its host, "" if it can.
func cannotFollow(first, next string) string {
	switch {
	case next == "kubectl delete node" && first != "reset" && first != "reset --force" && first != resetRemoveNode && first != "join" && first != "join --control-plane" && first != "init" && first != "etcd restore":
		return "the user deletes a Node only when its host is no node any more"
	case next == backupsRun && first != backupsRun && first != backupsElsewhere:
		return "the host has no timer of backups, or had none before"
	case first == "join" && (next == balancerApply || next == balancerUndo || next == balancerRemove):
		return "a worker applies no manifests"
	case (next == "init" || next == "etcd restore" || next == backupRestore || next == hostLost) && first != "init" && first != "etcd restore" && first != backupRestore:
		return "another control plane runs, which the user would not leave alone"
	}
	return ""
}

// hasPair reports whether a command has followed an interrupted one.
func (c *Coverage) hasPair(first, next string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pairs[[2]string{first, next}] > 0
}

// Table returns the counts, and the pairs of these commands that were never reached.
func (c *Coverage) Table(names []string) (table string, missing [][2]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "%-56s %8s %8s %12s\n", "command", "done", "refused", "interrupted")
	for _, name := range slices.Sorted(maps.Keys(c.ended)) {
		n := c.ended[name]
		fmt.Fprintf(&b, "%-56s %8d %8d %12d\n", name, n[0], n[1], n[2])
	}
	fmt.Fprintf(&b, "\n%-56s %8s\n", "step", "begun")
	for _, name := range slices.Sorted(maps.Keys(c.steps)) {
		fmt.Fprintf(&b, "%-56s %8d\n", name, c.steps[name])
	}
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	for _, first := range names {
		if n := c.ended[first]; n == nil || n[2] == 0 { // it makes no change that can be interrupted
			continue
		}
		for _, next := range names {
			if c.pairs[[2]string{first, next}] == 0 && cannotFollow(first, next) == "" {
				missing = append(missing, [2]string{first, next})
			}
		}
	}
	fmt.Fprintf(&b, "\npairs of an interrupted command and the next one on its host: %d reached, %d not:\n", len(c.pairs), len(missing))
	for _, p := range missing {
		fmt.Fprintf(&b, "  %s, then %s\n", p[0], p[1])
	}
	return b.String(), missing
}
