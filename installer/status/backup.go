package status

import (
	"context"
	"time"

	"airlift/installer/node"
)

// A Backup is the last backup of the cluster that was written on this host.
type Backup struct {
	Path  string    `json:"path"`
	Time  time.Time `json:"time"`
	Size  int64     `json:"size,omitempty"`
	Error string    `json:"error,omitempty"` // why it failed
}

func (r *Reader) readBackup(context.Context) (found result, err error) {
	record, err := node.LastBackup(r.Host)
	if err != nil || record == nil {
		return found, err
	}
	last := &Backup{record.Path, record.Time, record.Size, record.Error}
	found.set = func(s *Status) { s.LastBackup = last }
	switch {
	case last.Error != "":
		found.problem("write one after the cause is removed: ./install etcd snapshot FILE", "the last backup, %s, failed: %s", last.Path, last.Error)
	case !node.FileExists(r.Host, last.Path):
		found.warn("", "the last backup, %s, no longer exists", last.Path)
	}
	return found, nil
}
