package snapshot

import (
	"io"
	"strings"
	"testing"

	"airlift/installer/node"
	"airlift/installer/workflow"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/testhost"
)

// TestUnfinishedRestoreRefusesBackups: backups of a part of a backup would replace good ones.
func TestUnfinishedRestoreRefusesBackups(t *testing.T) {
	h := testhost.Open(t, t.TempDir())
	if err := node.WriteRecord(h, node.RestoreMarkPath, node.RestoreMark{File: "/mnt/usb/cluster.tar"}); err != nil {
		t.Fatal(err)
	}
	err := New(h, &workflow.Console{Out: io.Discard}).SaveInDirectory(t.Context(), t.TempDir(), "", 1)
	if err == nil || fault.ExitCode(err) != fault.Preflight || !strings.Contains(err.Error(), "a restore on this host is not finished") ||
		!strings.Contains(fault.Hint(err), "./install etcd restore /mnt/usb/cluster.tar") || !strings.Contains(fault.Hint(err), "./install reset") {
		t.Errorf("%v (hint %q)", err, fault.Hint(err))
	}
}
