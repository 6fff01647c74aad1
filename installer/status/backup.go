package status

import (
	"context"
	"time"

	"airlift/installer/host/ledger"
)

// backupPath has the result of the last backup that 'install etcd snapshot', or its timer,
// wrote on this host.
const backupPath = ledger.StateDir + "/backup.json"

// A Backup is the last backup of the cluster that was written on this host.
type Backup struct {
	Path  string    `json:"path"`
	Time  time.Time `json:"time"`
	Size  int64     `json:"size,omitempty"`
	Error string    `json:"error,omitempty"` // why it failed
}

func (r *Reader) readBackup(context.Context) (found result, err error) {
	last := &Backup{}
	written, err := r.Host.ReadState(backupPath, last, "the next backup replaces it: ./install etcd snapshot FILE")
	if err != nil || !written {
		return found, err
	}
	found.set = func(s *Status) { s.LastBackup = last }
	switch {
	case last.Error != "":
		found.problem("write one after the cause is removed: ./install etcd snapshot FILE", "the last backup, %s, failed: %s", last.Path, last.Error)
	case !exists(r.Host, last.Path):
		found.warn("", "the last backup, %s, no longer exists", last.Path)
	}
	return found, nil
}
