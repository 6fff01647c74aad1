package reset

import (
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"airlift/installer/workflow"
	"airlift/scripts/rig"
)

// kubeadmPhases returns the phases of a command of real kubeadm, with
// sub-phases as "name/sub".
func kubeadmPhases(t *testing.T, version, command string) (phases []string) {
	t.Helper()
	kubeadm := rig.Component(t, version, "kubeadm")
	help, err := exec.Command(kubeadm, command, "--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(string(help), "```")
	if len(parts) < 3 {
		t.Fatalf("no phase list in:\n%s", help)
	}
	parent := ""
	for _, m := range regexp.MustCompile(`(?m)^ *(/?)([a-z][a-z-]*) `).FindAllStringSubmatch(parts[1], -1) {
		if m[1] == "" {
			parent = m[2]
			phases = append(phases, parent)
		} else {
			phases = append(phases, parent+"/"+m[2])
		}
	}
	return phases
}

func TestResetHasKubeadmsPhases(t *testing.T) {
	for _, version := range []string{"v1.29.15", "v1.37.1"} {
		phases := kubeadmPhases(t, version, "reset")
		if len(phases) < 3 {
			t.Fatalf("only %q", phases)
		}
		ours := workflow.Names(Phases())
		last := -1
		for _, p := range phases {
			i := slices.Index(ours, p)
			switch {
			case i < 0:
				t.Errorf("kubeadm %s's phase %s is not among ours: %q", version, p, ours)
			case i < last:
				t.Errorf("kubeadm %s: %s comes before %s, in kubeadm after it", version, p, ours[last])
			default:
				last = i
			}
		}
	}
}
