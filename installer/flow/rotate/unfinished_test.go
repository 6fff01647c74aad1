package rotate

import (
	"io"
	"strings"
	"testing"

	"airlift/fault"
	"airlift/installer/node"
	"airlift/installer/workflow"
	"airlift/scripts/fixtures/testhost"
)

// TestUnfinishedRestoreRefusesARotation: the CAs on this host may be a part of those in the backup.
func TestUnfinishedRestoreRefusesARotation(t *testing.T) {
	h := testhost.Open(t, t.TempDir())
	if err := node.WriteRecord(h, node.RestoreMarkPath, node.RestoreMark{File: "/mnt/usb/cluster.tar"}); err != nil {
		t.Fatal(err)
	}
	_, err := New(t.Context(), Options{Stage: "distribute"}, h, &workflow.Console{Out: io.Discard})
	if err == nil || fault.ExitCode(err) != fault.Preflight || !strings.Contains(err.Error(), "a restore on this host is not finished") ||
		!strings.Contains(fault.Hint(err), "./install etcd restore /mnt/usb/cluster.tar") || !strings.Contains(fault.Hint(err), "./install reset") {
		t.Errorf("%v (hint %q)", err, fault.Hint(err))
	}
}
