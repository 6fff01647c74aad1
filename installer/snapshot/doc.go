// Package snapshot saves backups of a cluster and opens them again. A backup has a snapshot of etcd, the
// keys that all control planes share, and the cluster's configuration. A timer can save one at intervals.
package snapshot
