package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// backupPath describes the last snapshot of etcd that was written on this host. It is next to
// the ledger, and reset removes it; the snapshot itself is the user's.
const backupPath = StateDir + "/last-snapshot.json"

// A Backup is a snapshot of etcd.
type Backup struct {
	File  string    `json:"file"`
	Time  time.Time `json:"time"`
	Bytes int64     `json:"bytes"`
}

// RecordBackup records a snapshot for 'install status'. A host that Airlift did not install
// has no place for it.
func (h *Host) RecordBackup(b Backup) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.ledger.Entries) == 0 || h.outputOnly {
		return nil
	}
	data, err := json.MarshalIndent(b, "", "  ")
	if err != nil {
		return err
	}
	place, err := h.place(backupPath)
	if err == nil {
		err = replaceFile(place, append(data, '\n'), 0o600)
	}
	if err != nil {
		return fmt.Errorf("recording the snapshot %s: %w", b.File, err)
	}
	return nil
}

// LastBackup returns the last snapshot that was recorded, or nil.
func (h *Host) LastBackup() (*Backup, error) {
	data, err := os.ReadFile(h.Path(backupPath))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	b := &Backup{}
	if err == nil {
		err = json.Unmarshal(data, b)
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", backupPath, err)
	}
	return b, nil
}
