package seed

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// RecordFile is how far a host is.
const RecordFile = CopyDir + "/record.json"

// States of a host.
const (
	Waiting = "waiting" // for a drive, an address or the first control plane
	Running = "running" // its commands
	Failed  = "failed"  // a command failed, and runs again later
	Done    = "done"
	Ended   = "ended"   // of the first control plane: all are done, or the seed has expired
	Expired = "expired" // before this host was done: Reason is why it gave up
)

// A Record is how far this host is. It has no secrets, and stays until reset or until the seed is ended here.
type Record struct {
	Seed    string    `json:"seed"`
	Cluster string    `json:"cluster"`
	Host    string    `json:"host"`
	Role    string    `json:"role"`
	First   bool      `json:"first"` // it is the control plane that gets init
	Hosts   []Row     `json:"hosts"`
	Expires time.Time `json:"expires"`
	Steps   int       `json:"steps"` // commands that are done
	State   string    `json:"state"`
	Reason  string    `json:"reason,omitempty"`
	Node    bool      `json:"node,omitempty"` // it was a node when it gave up
}

// A Row is a host of the cluster.
type Row struct {
	Name string `json:"name"`
	Role string `json:"role"`
}

// ReadRecord returns how far the host at root is, nil if it has taken no seed.
func ReadRecord(root string) (*Record, error) {
	data, err := os.ReadFile(filepath.Join(root, RecordFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	r := &Record{}
	if err == nil {
		err = json.Unmarshal(data, r)
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", RecordFile, err)
	}
	return r, nil
}
