package rotate

import (
	"errors"
	"io"
	"strings"
	"testing"

	"airlift/installer/config"
	"airlift/installer/host/ledger"
	"airlift/installer/node"
	"airlift/installer/revision"
	"airlift/installer/workflow"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/layouts"
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

// TestUnfinishedResetRefusesARotation: the etcd member has left, so the API server of this host does not run, although all files are there.
func TestUnfinishedResetRefusesARotation(t *testing.T) {
	root := t.TempDir()
	if err := layouts.Kubeadm(layouts.Options{Version: "v1.36.3"}).WriteInside(root); err != nil {
		t.Fatal(err)
	}
	h := testhost.Open(t, root)
	if err := h.Records().BeginReset(ledger.Identity{}); err != nil {
		t.Fatal(err)
	}
	if !node.FileExists(h, config.KubeletConfigFile) {
		t.Fatal("the kubelet has no configuration")
	}
	_, err := New(t.Context(), Options{Stage: "distribute"}, h, &workflow.Console{Out: io.Discard})
	if fault.ExitCode(err) != fault.Preflight || !strings.Contains(err.Error(), "a reset of this host is not finished") || !strings.Contains(fault.Hint(err), "./install reset") {
		t.Errorf("%v (hint %q)", err, fault.Hint(err))
	}
}

// TestUnfinishedReconfigurationRefusesARotation: it may have written a certificate of the former CA, and goes on with it.
func TestUnfinishedReconfigurationRefusesARotation(t *testing.T) {
	root := t.TempDir()
	if err := layouts.Kubeadm(layouts.Options{Version: "v1.36.3"}).WriteInside(root); err != nil {
		t.Fatal(err)
	}
	h := testhost.Open(t, root)
	state := &revision.Record{Kind: revision.Reconfigure, From: "v1.36.3", To: "v1.36.3", Change: "ab"}
	if err := errors.Join(h.Records().Adopt(ledger.Adoption{Maker: "kubeadm"}), state.Write(h)); err != nil {
		t.Fatal(err)
	}
	_, err := New(t.Context(), Options{Stage: "distribute"}, h, &workflow.Console{Out: io.Discard})
	if fault.ExitCode(err) != fault.Preflight || !strings.Contains(err.Error(), "a reconfiguration of this node was not finished") {
		t.Errorf("%v (hint %q)", err, fault.Hint(err))
	}
}
