package workflow

import (
	"strings"
	"testing"
)

// Progress has texts of kubelets and the last lines of containers' logs.
func TestTextsCannotControlTheTerminal(t *testing.T) {
	var out strings.Builder
	c := &Console{Out: &out}
	c.Note("w1: %s", "\x1b]0;owned\x07")
	c.Warn("w1: %s", "\u202e\u009b2J")
	if want := "        w1: ?]0;owned?\n        warning: w1: ??2J\n"; out.String() != want {
		t.Errorf("%q", out.String())
	}
}
