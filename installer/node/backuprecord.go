package node

import (
	"fmt"
	"time"

	"airlift/installer/etcd"
	"airlift/installer/host"
	"airlift/installer/host/ledger"
	"airlift/installer/pki"
)

// A BackupRecord is the result of the last backup on this host.
type BackupRecord struct {
	Time time.Time `json:"time"`
	Path string    `json:"path"` // or the URL of a backup at a target
	// Target is the URL of the target, "" for a file of this host.
	Target   string         `json:"target,omitempty"`
	Size     int64          `json:"size,omitempty"`
	Snapshot *etcd.Snapshot `json:"snapshot,omitempty"`
	// CACertHash identifies the cluster, for --ca-cert-hash.
	CACertHash string `json:"caCertHash,omitempty"`
	Error      string `json:"error,omitempty"`
	// Timer is the last run of the timer, also after later backups by a command; nil if it has not run.
	Timer *TimerRun `json:"timer,omitempty"`
}

// A TimerRun is the last run of the timer.
type TimerRun struct {
	Error string `json:"error,omitempty"` // why it failed
	// Saved is when the last run began that has succeeded.
	Saved *time.Time `json:"saved,omitempty"`
}

// BackupRecordPath has the BackupRecord.
const BackupRecordPath = ledger.StateDir + "/backup.json"

// LastBackup returns the result of the last backup on this host, nil if there is none.
func LastBackup(h *host.Host) (*BackupRecord, error) {
	return readRecord[BackupRecord](h, BackupRecordPath, "the next backup replaces it: ./install etcd snapshot FILE")
}

// CAHash is the hash of the first CA certificate.
func CAHash(caPEM []byte) (string, error) {
	hashes, err := pki.CAHashes(caPEM)
	if err != nil || len(hashes) == 0 {
		return "", fmt.Errorf("reading the cluster's CA: %w", err)
	}
	return hashes[0], nil
}
