package etcd

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestOneHome: other packages use etcd only through this package's types.
func TestOneHome(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "airlift/...").Output()
	if err != nil {
		t.Fatal(err)
	}
	var importers []string
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if slices.ContainsFunc(f[1:], func(i string) bool { return strings.HasPrefix(i, "go.etcd.io/etcd/client/v3") }) {
			importers = append(importers, f[0])
		}
	}
	if !slices.Equal(importers, []string{"airlift/installer/etcd"}) {
		t.Errorf("etcd's client is imported by %q", importers)
	}
}
