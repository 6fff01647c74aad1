package node

import (
	"time"

	"airlift/installer/backup/target"
	"airlift/installer/host"
	"airlift/installer/host/ledger"
)

// A BackupList has the backups that this host has sent to targets on other machines. Retention removes only what is in it.
type BackupList struct {
	Copies []target.Copy `json:"copies"`
}

// BackupListPath has the BackupList.
const BackupListPath = ledger.StateDir + "/backup-list.json"

// ReadBackupList returns what this host has sent, an empty list if it is nothing.
func ReadBackupList(h *host.Host) (*BackupList, error) {
	l, err := readRecord[BackupList](h, BackupListPath, "move the file away: the next backup begins a new list, and nothing removes the backups of the old one at the target")
	if l == nil && err == nil {
		l = &BackupList{}
	}
	return l, err
}

// LastStored returns the last backup that has left this host for a target, nil for none.
func (l *BackupList) LastStored(url string) (last *target.Copy) {
	for i := range l.Copies {
		c := &l.Copies[i]
		if c.Target == url && c.Stored != nil && (last == nil || c.Stored.After(*last.Stored)) {
			last = c
		}
	}
	return last
}

// Waiting returns how many backups of the timer have not left this host. The files of others have made room.
func (l *BackupList) Waiting(h *host.Host, url string) (n int) {
	for _, c := range l.Copies {
		if c.Target == url && c.Stored == nil && FileExists(h, host.WaitingBackups+"/"+c.Name) {
			n++
		}
	}
	return n
}

// A Departure is what a status prints of the target of a BackupRecord.
type Departure struct {
	Target string `json:"target"`
	// Left is when the last backup was stored at the target and compared, nil if none was.
	Left *time.Time `json:"left,omitempty"`
	Name string     `json:"name,omitempty"`
	// Waiting are encrypted backups on this host that the next run sends.
	Waiting int `json:"waiting,omitempty"`
}

// Departed returns what a status prints of the target of a record, nil if it has none.
func Departed(h *host.Host, r *BackupRecord) (*Departure, error) {
	if r == nil || r.Target == "" {
		return nil, nil
	}
	l, err := ReadBackupList(h)
	if err != nil {
		return nil, err
	}
	d := &Departure{Target: r.Target, Waiting: l.Waiting(h, r.Target)}
	if last := l.LastStored(r.Target); last != nil {
		d.Left, d.Name = last.Stored, last.Name
	}
	return d, nil
}
