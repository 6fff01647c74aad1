package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"airlift/installer/host"
)

// snapshotPath describes the last snapshot of etcd that was written on this host.
const snapshotPath = host.StateDir + "/last-snapshot.json"

// A Backup is the last snapshot of etcd that was written on this host.
type Backup struct {
	File  string    `json:"file"`
	Time  time.Time `json:"time"`
	Bytes int64     `json:"bytes"`
}

func (r *Reader) readBackup(context.Context) (found result, err error) {
	data, err := os.ReadFile(r.Host.Path(snapshotPath))
	if errors.Is(err, fs.ErrNotExist) {
		return found, nil
	}
	var last Backup
	if err == nil {
		err = json.Unmarshal(data, &last)
	}
	if err != nil {
		return found, fmt.Errorf("reading %s: %w", snapshotPath, err)
	}
	found.set = func(s *Status) { s.LastBackup = &last }
	if !exists(r.Host, last.File) {
		found.warn("", "the last snapshot of etcd, %s, is not there any more", last.File)
	}
	return found, nil
}
