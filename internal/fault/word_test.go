package fault_test

import (
	"os/exec"
	"testing"

	"airlift/internal/fault"
)

func TestWord(t *testing.T) {
	for _, s := range []string{"install", "./a b", "it's", "$(x)", "a\nb", "-", "", "*", "ü"} {
		out, err := exec.Command("sh", "-c", "printf %s "+fault.Word(s)).Output()
		if err != nil || string(out) != s {
			t.Errorf("%q becomes %s, which a shell reads as %q, %v", s, fault.Word(s), out, err)
		}
	}
}
