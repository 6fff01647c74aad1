package main

import (
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"airlift/installer/flow/initcluster"
	"airlift/installer/flow/join"
	"airlift/installer/flow/reset"
	"airlift/installer/flow/upgrade"
	"airlift/installer/workflow"
	"airlift/scripts/fixtures/rig"
)

// TestInitHasKubeadmsPhases runs real kubeadm to get its phases. init must have
// each of them, with the same name and in the same order.
func TestInitHasKubeadmsPhases(t *testing.T) {
	hasKubeadmsPhases(t, initcluster.Phases(), 10, false, rig.Component(t, "v1.29.15", "kubeadm"), "init")
}

// TestUpgradeHasKubeadmsPhases does the same for upgrade. kubeadm v1.29 has no phases of apply.
func TestUpgradeHasKubeadmsPhases(t *testing.T) {
	kubeadm := rig.Component(t, "v1.37.1", "kubeadm")
	hasKubeadmsPhases(t, upgrade.ApplyPhases(), 7, false, kubeadm, "upgrade", "apply")
	hasKubeadmsPhases(t, upgrade.NodePhases(), 5, false, kubeadm, "upgrade", "node")
}

// TestJoinAndResetHaveKubeadmsPhases does the same for join and reset, with their sub-phases.
func TestJoinAndResetHaveKubeadmsPhases(t *testing.T) {
	for _, version := range []string{"v1.29.15", "v1.37.1"} {
		kubeadm := rig.Component(t, version, "kubeadm")
		hasKubeadmsPhases(t, join.Phases(true), 3, true, kubeadm, "join")
		hasKubeadmsPhases(t, reset.Phases(), 3, true, kubeadm, "reset")
	}
}

// hasKubeadmsPhases compares steps with the phases, at least this many, in the help of a command.
// deep includes sub-phases.
func hasKubeadmsPhases(t *testing.T, steps []workflow.Step, least int, deep bool, kubeadm string, command ...string) {
	t.Helper()
	help, err := exec.Command(kubeadm, append(command, "--help")...).Output()
	if err != nil {
		t.Fatal(err)
	}
	_, list, ok := strings.Cut(string(help), "```\n")
	if !ok {
		t.Fatalf("no phase list in:\n%s", help)
	}
	list, _, _ = strings.Cut(list, "```")
	var phases []string
	parent := ""
	for _, m := range regexp.MustCompile(`(?m)^ *(/?)([a-z][a-z-]*) `).FindAllStringSubmatch(list, -1) {
		if m[1] == "" {
			parent = m[2]
			phases = append(phases, parent)
		} else if deep { // sub-phases of init have other names in other versions: aliases
			phases = append(phases, parent+"/"+m[2])
		}
	}
	if len(phases) < least {
		t.Fatalf("only %q found in:\n%s", phases, list)
	}
	ours := workflow.Names(steps)
	last := -1
	for _, p := range phases {
		i := slices.Index(ours, p)
		switch {
		case i < 0:
			t.Errorf("kubeadm's phase %s is not among ours: %q", p, ours)
		case i < last:
			t.Errorf("%s comes before %s, in kubeadm after it", p, ours[last])
		default:
			last = i
		}
	}
}
