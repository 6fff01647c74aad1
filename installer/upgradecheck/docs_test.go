package upgradecheck

import (
	"os"
	"slices"
	"strings"
	"testing"

	"airlift/installer/kubeletcheck"
)

// TestDocumented checks that docs/upgrade-plan.md and the table list the same checks.
func TestDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/upgrade-plan.md")
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(line, "| `"); ok {
			name, _, _ = strings.Cut(name, "`")
			documented = append(documented, name)
		}
	}
	for _, name := range checkNames() {
		if !slices.Contains(documented, name) && !slices.Contains(kubeletcheck.Names(), name) {
			t.Errorf("%s is not in the document", name)
		}
	}
	for _, name := range documented {
		if !slices.Contains(checkNames(), name) {
			t.Errorf("%s is not a check", name)
		}
	}
}

// checkNames lists the names of all checks, in their order. DiskSpace is preflight's.
func checkNames() (names []string) {
	for _, c := range checks() {
		names = append(names, c.name)
	}
	return append(names, "DiskSpace")
}
