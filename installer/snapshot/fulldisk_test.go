package snapshot

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"airlift/installer/backup"
	"airlift/installer/etcd"
	"airlift/installer/node"
	"airlift/installer/workflow"
	"airlift/scripts/fixtures/smallfs"
)

// remaining returns the files below a directory.
func remaining(t *testing.T, dir string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestFullDrive: a backup that does not fit leaves nothing, and the earlier backup stays.
func TestFullDrive(t *testing.T) {
	large := filepath.Join(t.TempDir(), "snapshot.db")
	if err := os.WriteFile(large, make([]byte, 4<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	m := backup.Manifest{Snapshot: etcd.Snapshot{Size: 4 << 20}}
	b := &Backup{Machine: &node.Machine{Console: &workflow.Console{Out: new(bytes.Buffer)}}}

	drive := smallfs.Small(t, 1<<20)
	old := filepath.Join(drive, "cluster.tar")
	if err := os.WriteFile(old, []byte("the earlier backup"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := b.write(t.Context(), old, true, &gathered{manifest: m, snapshot: large, files: neededFiles})
	if err == nil || !strings.Contains(err.Error(), drive) {
		t.Errorf("a full drive: %v", err)
	}
	if data, err := os.ReadFile(old); err != nil || string(data) != "the earlier backup" || len(remaining(t, drive)) != 1 {
		t.Errorf("left on the drive: %q, %q, %v", remaining(t, drive), data, err)
	}
}
