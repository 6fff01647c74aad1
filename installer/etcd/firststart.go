package etcd

import (
	"path/filepath"

	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.uber.org/zap"
)

// FirstStartInterrupted reports whether the first start of etcd ended after it had created its
// write-ahead log and before it wrote the first entry. A power cut can do that. Such a directory
// has no data, and no etcd becomes ready with it: it never learns that it is itself a member.
// A log that cannot be read is not that case: etcd reports what is wrong with it.
func FirstStartInterrupted(dataDir string) bool {
	logs, err := filepath.Glob(filepath.Join(dataDir, "member", "wal", "*.wal"))
	if err != nil || len(logs) != 1 { // etcd starts a second file after 64 MB
		return false
	}
	w, err := wal.OpenForRead(zap.NewNop(), filepath.Dir(logs[0]), &walpb.Snapshot{})
	if err != nil {
		return false
	}
	defer w.Close()
	_, _, entries, err := w.ReadAll()
	return err == nil && len(entries) == 0
}
