package host

import (
	"testing"
	"time"
)

func TestLastBackup(t *testing.T) {
	h, unlock, err := OpenLocked(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	b := Backup{File: "/var/backups/etcd.db", Time: time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC), Bytes: 5}
	if err := h.RecordBackup(b); err != nil {
		t.Fatal(err)
	}
	if last, err := h.LastBackup(); err != nil || last != nil {
		t.Errorf("without a ledger: %v, %v", last, err)
	}
	if _, err := h.WriteFile("/etc/kubernetes/x", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := h.RecordBackup(b); err != nil {
		t.Fatal(err)
	}
	if last, err := h.LastBackup(); err != nil || *last != b {
		t.Errorf("%v, %v", last, err)
	}
	if _, err := h.RemoveInstalled(t.Context()); err != nil {
		t.Fatal(err)
	}
	if last, err := h.LastBackup(); err != nil || last != nil {
		t.Errorf("after reset: %v, %v", last, err)
	}
}
