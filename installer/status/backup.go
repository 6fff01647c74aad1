package status

import (
	"context"
	"fmt"
	"time"

	"airlift/installer/host"
	"airlift/installer/node"
)

// A Backup is the last backup of the cluster that was written on this host.
type Backup struct {
	Path  string    `json:"path"`
	Time  time.Time `json:"time"`
	Size  int64     `json:"size,omitempty"`
	Error string    `json:"error,omitempty"` // why it failed
	// Departure is about the target of the timer or of the last backup; nil if there is none.
	Departure *node.Departure `json:"departure,omitempty"`
}

func (r *Reader) readBackup(context.Context) (found result, err error) {
	record, err := node.LastBackup(r.Host)
	if err != nil {
		return found, err
	}
	departure, err := node.Departed(r.Host, record)
	if err != nil {
		return found, err
	}
	schedule, err := node.ReadBackupSchedule(r.Host)
	if err != nil {
		return found, err
	}
	if departure != nil && departure.Stranded > 0 {
		found.warn("copy them to another machine, or remove them; or send them: ./install etcd snapshot URL --every INTERVAL", "%d encrypted backups were not sent, and no timer sends them: see %s", departure.Stranded, host.WaitingBackups)
	}
	if record == nil {
		return found, nil
	}
	last := &Backup{record.Path, record.Time, record.Size, record.Error, departure}
	found.set = func(s *Status) { s.LastBackup = last }
	ended := &record.Time
	if departure != nil && departure.Target == schedule.Place {
		ended = departure.Left
	}
	reported := last.Error != ""
	if timer := record.Timer; timer != nil { // its runs alone, and not later backups by a command
		ended, reported = timer.Saved, reported && timer.Error == last.Error
		if schedule.Place != "" && timer.Error != "" && !reported {
			found.problem("remove the cause; the timer tries again, or: systemctl restart airlift-backup.service", "the timer's last backup to %s failed: %s", schedule.Place, timer.Error)
			reported = true
		}
	}
	if !reported && schedule.Overdue(ended, time.Now()) {
		found.problem("see why: systemctl status airlift-backup.timer airlift-backup.service", "the timer writes a backup to %s every %s, and the last one is of %s", schedule.Place, schedule.Every, ended.Format(time.RFC3339))
	}
	switch {
	case last.Error != "" && record.Target != "" && record.Target != schedule.Place:
		found.problem("remove the cause, and run the same command again; no timer does", "the last backup was not sent to %s: %s", record.Target, last.Error)
	case last.Error != "" && record.Target != "":
		left := "no backup has left this host for " + departure.Target
		if departure.Left != nil {
			left = fmt.Sprintf("the last backup that left this host is of %s", departure.Left.Format(time.RFC3339))
		}
		found.problem("remove the cause; the timer tries again, or: systemctl restart airlift-backup.service", "%s, and %d wait on it: %s", left, departure.Waiting, last.Error)
	case last.Error != "":
		found.problem("write one after the cause is removed: ./install etcd snapshot FILE", "the last backup, %s, failed: %s", last.Path, last.Error)
	case record.Target == "" && !node.FileExists(r.Host, last.Path):
		found.warn("", "the last backup, %s, no longer exists", last.Path)
	}
	return found, nil
}
