package upgrade

import (
	"io"
	"strings"
	"testing"

	"airlift/bundle"
	"airlift/installer/desired"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/payload"
	"airlift/installer/pods"
	"airlift/installer/revision"
	"airlift/installer/workflow"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/testhost"
)

// TestUnfinishedRestoreRefusesAnUpgrade: the control plane may have a part of the backup.
func TestUnfinishedRestoreRefusesAnUpgrade(t *testing.T) {
	h, unlock, err := host.OpenLocked(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	if err := node.WriteRecord(h, node.RestoreMarkPath, node.RestoreMark{File: "/mnt/usb/cluster.tar"}); err != nil {
		t.Fatal(err)
	}
	if err := (&revision.Record{Kind: revision.Upgrade, From: "v1.37.1", To: "v1.37.2", Finished: true}).Write(h); err != nil {
		t.Fatal(err)
	}
	_, undoing := revision.NewUndo(revision.Upgrade, h, &workflow.Console{Out: io.Discard})
	u := New(&payload.Bundle{Manifest: &bundle.Manifest{}}, Options{}, true, h, &workflow.Console{Out: io.Discard})
	u.Config = testhost.Config(nil)
	u.Pods = pods.WithWatch(u.Watch, u.Config.Timeouts)
	for name, err := range map[string]error{"undo": undoing, "the phase control-plane": u.ReplacePods(t.Context(), desired.List{})} {
		if err == nil || fault.ExitCode(err) != fault.Preflight || !strings.Contains(err.Error(), "a restore on this host is not finished") ||
			!strings.Contains(fault.Hint(err), "./install etcd restore /mnt/usb/cluster.tar") || !strings.Contains(fault.Hint(err), "./install reset") {
			t.Errorf("%s: %v (hint %q)", name, err, fault.Hint(err))
		}
	}
}
