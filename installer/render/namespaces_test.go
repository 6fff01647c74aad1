package render_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// insideNamespaces is set if the test binary runs in new namespaces.
const insideNamespaces = "AIRLIFT_TEST_NAMESPACES"

// inOwnNamespaces runs the calling test again in a new network and mount
// namespace, so that the test does not change this machine. It returns true in
// that run. In the first run it waits for the other one, fails the test if that
// failed, and returns false.
func inOwnNamespaces(t *testing.T) bool {
	t.Helper()
	if os.Getenv(insideNamespaces) != "" {
		return true
	}
	args := []string{"--mount", "--net", "--propagation", "private"}
	if os.Getuid() != 0 {
		args = append(args, "--map-root-user")
	}
	cmd := exec.Command("unshare", append(args, os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")...)
	cmd.Env = append(os.Environ(), insideNamespaces+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("in its own namespaces: %v\n%s", err, out)
	}
	return false
}

func run(t *testing.T, command ...string) string {
	t.Helper()
	out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(command, " "), err, out)
	}
	return string(out)
}
