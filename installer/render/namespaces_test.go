package render_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// insideNamespaces tells the test binary that it runs in namespaces of its own.
const insideNamespaces = "AIRLIFT_TEST_NAMESPACES"

// inOwnNamespaces runs the calling test again in a network and a mount
// namespace of its own, so that nothing of this machine changes. It is true in
// there; out here it is false when that run is over, and has failed the test
// if that run did.
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
