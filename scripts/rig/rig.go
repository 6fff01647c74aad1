// Package rig lets a test declare what it needs from the machine: root, a real component of
// Kubernetes, or a tool. Without AIRLIFT_RIG in the environment, such a test is skipped by
// name, so plain `go test ./...` gives the same result on every machine. `make test` sets
// AIRLIFT_RIG, and then whatever is missing fails the test.
package rig

import (
	"os"
	"os/exec"
	"testing"

	"airlift/scripts/upstream/components"
)

// Variable names the environment variable.
const Variable = "AIRLIFT_RIG"

// Needs skips the test if AIRLIFT_RIG is not set. what names what the test needs.
func Needs(t testing.TB, what string) {
	t.Helper()
	if os.Getenv(Variable) == "" {
		t.Skipf("NOT RUN: needs %s; `make test` runs it", what)
	}
}

// Root is for a test that only root can run.
func Root(t testing.TB) {
	t.Helper()
	Needs(t, "root")
	if os.Geteuid() != 0 {
		t.Fatal("run `make test` as root: this test needs root")
	}
}

// Component returns the path of a real component, for example the kubeadm of v1.29.15.
func Component(t testing.TB, version, name string) string {
	t.Helper()
	Needs(t, name+" "+version)
	path, err := components.Path(version, name)
	if err != nil {
		t.Fatalf("this test runs the real %s: %v", name, err)
	}
	return path
}

// Tool returns the path of a command that not every machine has.
func Tool(t testing.TB, name string) string {
	t.Helper()
	Needs(t, "the command "+name)
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("%v; `make packages` installs what the tests need", err)
	}
	return path
}
