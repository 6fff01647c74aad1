// Package remote reads a bundle from the control planes of a cluster, by ranges over HTTPS. A cut continues where
// it was, at another control plane. The caller compares what it reads with the digests of the bundle.
package remote
