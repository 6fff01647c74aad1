//go:build e2e

package e2e

import (
	"os/exec"
	"path/filepath"
	"testing"

	"airlift/scripts/fixtures/fakesites"
)

// buildBundle builds a bundle of the tested version with these arguments of scripts/buildbundle, and returns what that printed.
func buildBundle(t *testing.T, output string, args ...string) string {
	t.Helper()
	args = append([]string{"run", "./scripts/buildbundle", "--version", version, "--compression", "fastest", "--output", output}, args...)
	build := exec.CommandContext(t.Context(), "go", args...)
	build.Dir = ".."
	out, err := build.CombinedOutput()
	if err != nil {
		t.Fatalf("building %s: %v\n%s", output, err, out)
	}
	return string(out)
}

// buildFile builds a bundle from these files, one of which is its bundle.yaml.
func buildFile(t *testing.T, output, file string, files map[string]string) string {
	t.Helper()
	return buildBundle(t, output, "--", "--file", filepath.Join(fakesites.Files(t, files), file))
}
