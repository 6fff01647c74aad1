package installer

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"airlift/installer/backup"
	"airlift/installer/etcd"
	"airlift/installer/host"
	"airlift/scripts/smallfs"
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

// TestFullDisks: a backup that does not fit leaves nothing, neither on its drive nor in a restore.
func TestFullDisks(t *testing.T) {
	large := filepath.Join(t.TempDir(), "snapshot.db")
	if err := os.WriteFile(large, make([]byte, 4<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	m := backup.Manifest{Snapshot: etcd.Snapshot{Size: 4 << 20}}
	b := &Backup{machine: &machine{console: &Console{Out: new(bytes.Buffer)}}}

	drive := smallfs.Small(t, 1<<20)
	old := filepath.Join(drive, "cluster.tar")
	if err := os.WriteFile(old, []byte("the earlier backup"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := b.write(t.Context(), old, true, m, large, neededFiles)
	if err == nil || !strings.Contains(err.Error(), drive) {
		t.Errorf("a full drive: %v", err)
	}
	if data, err := os.ReadFile(old); err != nil || string(data) != "the earlier backup" || len(remaining(t, drive)) != 1 {
		t.Errorf("left on the drive: %q, %q, %v", remaining(t, drive), data, err)
	}

	file := filepath.Join(t.TempDir(), "cluster.tar")
	if _, err := b.write(t.Context(), file, false, m, large, neededFiles); err != nil {
		t.Fatal(err)
	}
	r := restoring(t)
	if r.backup, err = OpenBackup(t.Context(), file, nil); err != nil {
		t.Fatal(err)
	}
	disk := smallfs.Small(t, 1<<20)
	if r.host, err = host.OpenDirectory(disk); err != nil {
		t.Fatal(err)
	}
	if err := host.OutputDir(r.host.Path("/work"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := r.writeSnapshot(t.Context(), "/work"); err == nil || len(remaining(t, disk)) > 0 {
		t.Errorf("a full disk: %v, left: %q", err, remaining(t, disk))
	}
}
