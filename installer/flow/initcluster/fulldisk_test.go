package initcluster

import (
	"io/fs"
	"path/filepath"
	"testing"

	"airlift/installer/backup"
	"airlift/installer/host"
	"airlift/installer/host/filesystem"
	"airlift/installer/snapshot"
	"airlift/scripts/fixtures/smallfs"
)

// TestFullDisk: a restore that does not fit leaves nothing.
func TestFullDisk(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cluster.tar")
	writeBackup(t, file, backup.Manifest{}, make([]byte, 4<<20))
	r := restoring(t)
	var err error
	if r.backup, err = snapshot.Open(t.Context(), file, nil); err != nil {
		t.Fatal(err)
	}
	disk := smallfs.Small(t, 1<<20)
	if r.Host, err = host.OpenDirectory(disk); err != nil {
		t.Fatal(err)
	}
	if err := filesystem.OutputDir(r.Host.Path("/work"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := r.writeSnapshot(t.Context(), "/work"); err == nil {
		t.Error("the snapshot fits")
	}
	err = filepath.WalkDir(disk, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			t.Errorf("left on the disk: %s", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
