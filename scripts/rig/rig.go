// Package rig lets a test declare what it needs from the machine: root, a real component of
// Kubernetes, or a tool. Without AIRLIFT_RIG in the environment, such a test is skipped by
// name, so plain `go test ./...` gives the same result on every machine. `make test` sets
// AIRLIFT_RIG, and then whatever is missing fails the test.
package rig

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"airlift/scripts/upstream/components"
)

// Variable names the environment variable.
const Variable = "AIRLIFT_RIG"

// ComponentsVariable names the environment variable with a version and the components that
// `make test` builds of it, as in v1.37.1:kubeadm,etcd. A test that uses another component of
// this version fails even where that component exists: it would fail on a new machine.
const ComponentsVariable = "AIRLIFT_RIG_COMPONENTS"

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
	if !listed(os.Getenv(ComponentsVariable), version, name) {
		t.Fatalf("`make test` does not build %s of %s: add it to NEWEST_COMPONENTS in the Makefile", name, version)
	}
	path, err := components.Path(version, name)
	if err != nil {
		t.Fatalf("this test runs the real %s: %v", name, err)
	}
	return path
}

// listed reports whether the list, which has the format of ComponentsVariable, names the
// component or is for another version. The commands of containerd are built with it.
func listed(list, version, name string) bool {
	names, ok := strings.CutPrefix(list, version+":")
	return !ok || name == "ctr" || slices.Contains(strings.Split(names, ","), name)
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
