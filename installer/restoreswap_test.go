package installer

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"airlift/fault"
	"airlift/installer/backup"
)

// The snapshot that is restored is that of the backup whose CAs were checked: a file that is
// replaced between the two is not used.
func TestBackupIsReplacedDuringRestore(t *testing.T) {
	dir := t.TempDir()
	write := func(name, snapshot, key string) []byte {
		t.Helper()
		db := filepath.Join(dir, "snapshot.db")
		if err := os.WriteFile(db, []byte(snapshot), 0o600); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := backup.Write(&out, backup.Manifest{KubernetesVersion: "v1.37.1"}, db, []backup.File{{Name: backup.PKIDir + "ca.key", Data: []byte(key)}}); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), out.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	write("cluster.tar", "the snapshot", "a key")
	path := filepath.Join(dir, "cluster.tar")
	f, err := OpenBackup(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.read(t.Context(), cancelled{t.Context(), discard{}}); err != nil {
		t.Errorf("the same file: %v", err)
	}
	for _, other := range [][]byte{write("other", "another snapshot", "a key"), write("other", "the snapshot", "another key")} {
		if err := os.WriteFile(path, other, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := f.read(t.Context(), cancelled{t.Context(), discard{}}); err == nil || fault.ExitCode(err) != fault.Bundle || fault.Hint(err) == "" || !strings.Contains(err.Error(), "was changed") {
			t.Errorf("another file: %v", err)
		}
	}
}
