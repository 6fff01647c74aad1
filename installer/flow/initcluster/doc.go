// Package initcluster creates a cluster on its first control plane. Init creates a new cluster, and Restore
// creates it again from a backup. Both can be repeated after an interruption.
package initcluster
