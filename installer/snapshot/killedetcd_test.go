package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"

	"airlift/installer/host"
	"airlift/installer/host/ledger"
	"airlift/installer/workflow"
	"airlift/scripts/fixtures/crash"
	"airlift/scripts/fixtures/rig"
	"airlift/scripts/fixtures/testhost"
)

// snapshotVariable makes the test binary save an encrypted backup of the etcd of the host in a directory.
const snapshotVariable = "AIRLIFT_TEST_SNAPSHOT"

func init() {
	recipient, root, ok := strings.Cut(os.Getenv(snapshotVariable), "\n")
	if !ok {
		return
	}
	to, err := age.ParseX25519Recipient(recipient)
	if err == nil {
		var h *host.Host
		if h, err = host.Open(filepath.Join(root, "host")); err == nil {
			b := New(h, &workflow.Console{Out: io.Discard})
			b.Recipients = []age.Recipient{to}
			err = b.Save(context.Background(), filepath.Join(root, "drive", "cluster.tar.age"), false)
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// TestKilledSnapshot kills an encrypted backup on a host without a ledger, while it saves the snapshot of a
// real etcd. No plain data is left, neither on the drive nor on the host.
func TestKilledSnapshot(t *testing.T) {
	rig.Needs(t, "ptrace")
	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	testhost.RunEtcd(t, filepath.Join(root, "host"), plainSecret)
	if err := errors.Join(os.Mkdir(filepath.Join(root, "drive"), 0o700), os.MkdirAll(filepath.Join(root, "host", "var", "lib"), 0o755)); err != nil {
		t.Fatal(err)
	}
	points, written := 0, false
	for killed := true; killed; {
		points++
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), snapshotVariable+"="+key.Recipient().String()+"\n"+root)
		was, err := crash.Run(cmd, crash.Numbered(points, func(c crash.Call) bool {
			written = written || c.Name == "write" && strings.Contains(c.Path, "airlift-scratch")
			return strings.HasPrefix(c.Path, root)
		}))
		if err != nil && !strings.Contains(err.Error(), "exit code 1") {
			t.Fatal(err)
		}
		killed = was
		noPlainData(t, root, key)
		if list, err := os.ReadDir(filepath.Join(root, "drive")); err != nil || len(list) > 0 {
			t.Errorf("call %d: on the drive: %v, %v", points, list, err)
		}
	}
	if !written {
		t.Error("the snapshot was never written")
	}
	if _, err := os.Lstat(filepath.Join(root, "host", ledger.StateDir)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is left on the host: %v", ledger.StateDir, err)
	}
	t.Logf("killed at %d calls", points-1)
}
