package status

import (
	"context"
	"fmt"
	"time"

	"airlift/installer/node"
)

// A Backup is the last backup of the cluster that was written on this host.
type Backup struct {
	Path  string    `json:"path"`
	Time  time.Time `json:"time"`
	Size  int64     `json:"size,omitempty"`
	Error string    `json:"error,omitempty"` // why it failed
	// Departure is about the target on another machine; nil for a backup in a file.
	Departure *node.Departure `json:"departure,omitempty"`
}

func (r *Reader) readBackup(context.Context) (found result, err error) {
	record, err := node.LastBackup(r.Host)
	if err != nil || record == nil {
		return found, err
	}
	departure, err := node.Departed(r.Host, record)
	if err != nil {
		return found, err
	}
	last := &Backup{record.Path, record.Time, record.Size, record.Error, departure}
	found.set = func(s *Status) { s.LastBackup = last }
	switch {
	case last.Error != "" && departure != nil:
		left := "no backup has left this host for " + departure.Target
		if departure.Left != nil {
			left = fmt.Sprintf("the last backup that left this host is of %s", departure.Left.Format(time.RFC3339))
		}
		found.problem("remove the cause; the timer tries again, or: systemctl restart airlift-backup.service", "%s, and %d wait on it: %s", left, departure.Waiting, last.Error)
	case last.Error != "":
		found.problem("write one after the cause is removed: ./install etcd snapshot FILE", "the last backup, %s, failed: %s", last.Path, last.Error)
	case departure == nil && !node.FileExists(r.Host, last.Path):
		found.warn("", "the last backup, %s, no longer exists", last.Path)
	}
	return found, nil
}
