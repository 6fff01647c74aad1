package upgradecheck

import (
	"os/exec"
	"strings"
	"testing"

	"airlift/scripts/rig"
)

// TestRemovedFlagsOfRealComponents gives each flag of the table to real components: the older one
// knows it, and the newer one does not.
func TestRemovedFlagsOfRealComponents(t *testing.T) {
	for _, version := range []string{"v1.29.15", "v1.37.1"} {
		for _, f := range removedIn {
			// The last flag exists in no version, so that nothing starts.
			out, err := exec.Command(rig.Component(t, version, f.component), "--"+f.name+"=1", "--no-such-flag").CombinedOutput()
			if err == nil {
				t.Fatalf("%s started", f.component)
			}
			unknown := strings.Contains(string(out), "unknown flag: --"+f.name+"\n")
			if unknown != (version == "v1.37.1") {
				t.Errorf("%s %s: --%s: %.300s", f.component, version, f.name, out)
			}
		}
	}
}
