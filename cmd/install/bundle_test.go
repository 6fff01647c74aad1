package main

import (
	"cmp"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"airlift/bundle"
	"airlift/scripts/fixtures/testbundle"
)

// bundleFile writes a bundle file that runs this test's main.
func bundleFile(t *testing.T, kubernetes string) string {
	t.Helper()
	return bundleWith(t, bundle.Manifest{KubernetesVersion: kubernetes})
}

// bundleWith writes a bundle file with this manifest and no entries.
func bundleWith(t *testing.T, m bundle.Manifest) string {
	t.Helper()
	self, err := os.ReadFile(os.Args[0])
	must(t, err)
	path := filepath.Join(t.TempDir(), "install")
	m.FormatVersion, m.CNI = bundle.FormatVersion, cmp.Or(m.CNI, "none")
	if m.Platform == "" {
		m.Platform = "linux/" + runtime.GOARCH
	}
	executables := bundle.Executables{Launcher: self, Installer: []byte("not used")}
	testbundle.WriteFile(t, path, executables, &m, bundle.Fastest, nil)
	return path
}

// runBundle runs a file of bundleFile.
func runBundle(t *testing.T, path string, args ...string) (output string, code int) {
	t.Helper()
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), asMain+"=1")
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}
