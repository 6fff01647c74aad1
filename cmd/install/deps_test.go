package main

import (
	"os/exec"
	"strings"
	"testing"
)

// TestInstallCannotPull holds the line that DESIGN draws: the program for
// isolated hosts links nothing that could fetch an image or a file.
func TestInstallCannotPull(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	deps := strings.Fields(string(out))
	if len(deps) < 100 {
		t.Fatalf("only %d dependencies listed: %s", len(deps), out)
	}
	for _, dep := range deps {
		for _, forbidden := range []string{
			"github.com/google/go-containerregistry", "github.com/hashicorp/go-retryablehttp",
			"github.com/containerd/containerd/v2/core/remotes/docker",
			"airlift/bundle/fetch", "airlift/bundle/build", "airlift/images/registry",
		} {
			if dep == forbidden || strings.HasPrefix(dep, forbidden+"/") {
				t.Errorf("links %s", dep)
			}
		}
	}
}
