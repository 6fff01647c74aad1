//go:build e2e

package e2e

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"airlift/installer/host/ledger"
	"airlift/scripts/lab"
	"airlift/scripts/lab/site"
)

// everyWrite takes about ten minutes, too long for every change.
var everyWrite = flag.Bool("every-ledger-write", false, "TestKilledAtLedgerWrites: at each write, not at every fifth")

// TestKilledAtLedgerWrites kills init right before its writes to the ledger, twice in a
// row: a run makes some writes, does what they announce, and is killed before the next; the
// next run is killed in the same way. Then init completes, and reset restores everything.
func TestKilledAtLedgerWrites(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-killed", Hosts: 1})
	h := s.Hosts[0]
	const theirs = "# theirs\n"
	run(t, h, "sh", "-c", "mkdir -p /etc/containerd && printf '"+theirs+"' >/etc/containerd/config.toml && chmod 640 /etc/containerd/config.toml && chown 1000:1001 /etc/containerd/config.toml")
	bare := untouched(t, h)

	crashat := filepath.Join(t.TempDir(), "crashat")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", crashat, "airlift/scripts/fixtures/crash/crashat")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if _, err := h.CopyIn(t.Context(), crashat, "/root/crashat", 0o755); err != nil {
		t.Fatal(err)
	}
	// A run without a write completes. The kubelet's certificate has a new name in every
	// run until its link exists, so one run must make two writes to continue after that.
	writes := []int{6, 6, 5, 7}
	if *everyWrite {
		writes = []int{1, 2, 1, 2, 1, 3}
	}
	started, runs := time.Now(), 0
	for done := false; !done; {
		for _, n := range writes {
			if done {
				break
			}
			out, err := h.Output(t.Context(), "/root/crashat", strconv.Itoa(n), filepath.Base(ledger.Path), site.Installer, "init", "--skip-file-check")
			runs++
			switch exitCode(err) {
			case 0:
				done = true
			case 9:
			default:
				t.Fatalf("run %d, to be killed at its ledger write %d: %v\n%s", runs, n, err, out)
			}
		}
	}
	t.Logf("%d runs in %s, each killed at one of its writes %v", runs, time.Since(started).Round(time.Second), writes)
	contains(t, install(t, h, 0, "init"), "Nothing was changed")
	systemIsUp(t, s, 1)
	install(t, h, 0, "reset", "--force")
	same(t, bare, untouched(t, h))
	if got := run(t, h, "cat", "/etc/containerd/config.toml"); got != theirs {
		t.Errorf("the host's own file is %q", got)
	}
}
