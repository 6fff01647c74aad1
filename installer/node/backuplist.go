package node

import (
	"strings"
	"time"

	"airlift/installer/backup/target"
	"airlift/installer/host"
	"airlift/installer/host/ledger"
)

// A BackupList has the backups that this host has sent to targets on other machines. Retention removes only what is in it.
type BackupList struct {
	// ID is random. After a reset, the list has another one: a command that has sent a backup meanwhile does not change it.
	ID     string        `json:"id,omitempty"`
	Copies []target.Copy `json:"copies"`
}

const (
	// BackupListPath has the BackupList.
	BackupListPath = ledger.StateDir + "/backup-list.json"
	// BackupTimer is the name of the timer that writes backups.
	BackupTimer = "airlift-backup"
)

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

// Waiting returns the backups that have not left this host. The files of some have made room for newer ones: these do not count.
func (l *BackupList) Waiting(h *host.Host) (list []target.Copy) {
	for _, c := range l.Copies {
		if c.Stored == nil && FileExists(h, host.WaitingBackups+"/"+c.Name) {
			list = append(list, c)
		}
	}
	return list
}

// A BackupSchedule is what the backup timer of this host does.
type BackupSchedule struct {
	Place string // a directory or a URL, "" if there is no timer
	Every time.Duration
}

// ReadBackupSchedule reads the unit of the timer.
func ReadBackupSchedule(h *host.Host) (s BackupSchedule, err error) {
	settings, err := h.TimerCommand(BackupTimer)
	command, rest, ok := strings.Cut(settings, " --every ")
	if err != nil || !ok {
		return s, err
	}
	every, _, _ := strings.Cut(rest, " ")
	s.Every, err = time.ParseDuration(every)
	s.Place = strings.TrimPrefix(command, "etcd snapshot ")
	return s, err
}

// Overdue reports whether a timer should have written a backup since the last one, whose time is nil if there is none: it is older than two
// intervals and the time limit of a run.
func (s BackupSchedule) Overdue(last *time.Time, now time.Time) bool {
	return s.Place != "" && last != nil && now.Sub(*last) > 2*s.Every+2*time.Hour
}

// A Departure is what a status prints of a target on another machine.
type Departure struct {
	// Target is the target of the timer; without one, of the last backup.
	Target string `json:"target"`
	// Left is when the last backup was stored at the target and compared, nil if none was.
	Left *time.Time `json:"left,omitempty"`
	Name string     `json:"name,omitempty"`
	// Waiting are encrypted backups on this host that the next run sends.
	Waiting int `json:"waiting,omitempty"`
	// Stranded are encrypted backups on this host that no timer sends.
	Stranded int `json:"stranded,omitempty"`
}

// Departed returns what a status prints of the target of the timer or of the last backup, nil if there is none.
func Departed(h *host.Host, r *BackupRecord) (*Departure, error) {
	s, err := ReadBackupSchedule(h)
	if err != nil {
		return nil, err
	}
	d, timer := &Departure{}, target.IsURL(s.Place)
	if timer {
		d.Target = s.Place
	} else if r != nil {
		d.Target = r.Target
	}
	l, err := ReadBackupList(h)
	if err != nil {
		return nil, err
	}
	for _, c := range l.Waiting(h) {
		if timer && c.Target == s.Place {
			d.Waiting++
		} else {
			d.Stranded++
		}
	}
	if d.Target == "" && d.Stranded == 0 {
		return nil, nil
	}
	if last := l.LastStored(d.Target); last != nil {
		d.Left, d.Name = last.Stored, last.Name
	}
	return d, nil
}
