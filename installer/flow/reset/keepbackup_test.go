package reset

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/host/ledger"
	"airlift/installer/node"
	"airlift/installer/workflow"
	"airlift/internal/fault"
)

// TestResetKeepsTheLastBackup: an older installer has written it below a directory that reset removes.
func TestResetKeepsTheLastBackup(t *testing.T) {
	root := t.TempDir()
	h, err := host.OpenDirectory(root)
	if err != nil {
		t.Fatal(err)
	}
	for path, lost := range map[string]bool{ledger.StateDir + "/cluster.tar": true, ledger.StateDir + "/my backup.tar": true, "/root/cluster.tar": false, ledger.StateDir + "/missing.tar": false} {
		if !strings.HasSuffix(path, "missing.tar") {
			if err := os.MkdirAll(h.Path(filepath.Dir(path)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(h.Path(path), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := node.WriteRecord(h, node.BackupRecordPath, node.BackupRecord{Path: path}); err != nil {
			t.Fatal(err)
		}
		_, err := New(config.Reset{Force: true}, "", h, &workflow.Console{Out: new(bytes.Buffer)})
		if lost != (err != nil) || err != nil && (fault.ExitCode(err) != fault.Preflight || !strings.Contains(fault.Hint(err), "mv "+fault.Word(path)+" /root/")) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestResetAfterARefusedBackup: what a failed backup names is not a backup.
func TestResetAfterARefusedBackup(t *testing.T) {
	h, err := host.OpenDirectory(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := node.WriteRecord(h, node.BackupRecordPath, node.BackupRecord{Path: ledger.StateDir, Error: "it would be lost"}); err != nil {
		t.Fatal(err)
	}
	if err := keepBackup(h); err != nil {
		t.Error(err)
	}
}
