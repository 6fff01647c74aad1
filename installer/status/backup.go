package status

import (
	"context"

	"airlift/installer/host"
)

// A Backup is the last snapshot of etcd that was written on this host.
type Backup = host.Backup

func (r *Reader) readBackup(context.Context) (found result, err error) {
	last, err := r.Host.LastBackup()
	if err != nil || last == nil {
		return found, err
	}
	found.set = func(s *Status) { s.LastBackup = last }
	if !exists(r.Host, last.File) {
		found.warn("", "the last snapshot of etcd, %s, is not there any more", last.File)
	}
	return found, nil
}
