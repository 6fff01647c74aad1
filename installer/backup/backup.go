// Package backup reads and writes the archive of a cluster's backup: a tar file with a
// manifest, a snapshot of etcd, the keys that all control planes share, and the configuration.
// It may be encrypted with age.
package backup

import (
	"errors"
	"time"

	"airlift/installer/config"
	"airlift/installer/etcd"
)

// Format is the version of the archive's format.
const Format = 1

// Names of entries. The manifest is the first one.
const (
	ManifestName = "manifest.json"
	SnapshotName = "etcd/snapshot.db"
	ConfigName   = "config/kubeadm.yaml"
	// PKIDir is the directory of the shared keys and certificates, with kubeadm's names.
	PKIDir = "pki/"
	// FilesDir is the directory of other files, with their paths on the host.
	FilesDir = "files/"
)

// A Manifest describes a backup.
type Manifest struct {
	Format  int       `json:"format"`
	Created time.Time `json:"created"`
	// KubernetesVersion is the control plane's version.
	KubernetesVersion string `json:"kubernetesVersion"`
	ClusterName       string `json:"clusterName"`
	// CNI is the pod network: "flannel" or "none".
	CNI                  string `json:"cni"`
	ControlPlaneEndpoint string `json:"controlPlaneEndpoint,omitempty"`
	// Endpoint and EmbeddedRegistry are what the control planes serve besides kubeadm's components: nil and false for nothing.
	Endpoint         *config.Endpoint `json:"endpoint,omitempty"`
	EmbeddedRegistry bool             `json:"embeddedRegistry,omitempty"`
	// Node is the node that wrote the backup.
	Node string `json:"node"`
	// CACertHash identifies the cluster: the hash of its CA, as for join.
	CACertHash string `json:"caCertHash"`
	// EtcdClusterID is etcd's, in hexadecimal.
	EtcdClusterID string        `json:"etcdClusterID"`
	EtcdVersion   string        `json:"etcdVersion"`
	Members       []Member      `json:"members"`
	Snapshot      etcd.Snapshot `json:"snapshot"`
	Entries       []Entry       `json:"entries"`
}

// A Member is a member of etcd at the time of the backup.
type Member struct {
	Name    string `json:"name"`
	PeerURL string `json:"peerURL"`
}

// An Entry is a file in the archive.
type Entry struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// The kinds of errors of Read.
var (
	// ErrNotBackup is the cause of errors about a file that is something else.
	ErrNotBackup = errors.New("it is not an Airlift backup")
	// ErrTruncated is the cause of errors about a file that ends early.
	ErrTruncated = errors.New("the file ends early")
	// ErrDamaged is the cause of errors about content with another checksum.
	ErrDamaged = errors.New("the file is damaged")
	// ErrEncrypted is the cause of errors about an encrypted file that is read without a key.
	ErrEncrypted = errors.New("the file is encrypted")
	// ErrOtherKey is the cause of errors about a file that is encrypted to other keys.
	ErrOtherKey = errors.New("the file is encrypted for another key")
)
