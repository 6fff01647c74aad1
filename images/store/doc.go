// Package store imports images into containerd. It unpacks layers directly from the
// bundle's stream into snapshots and does not store the compressed blobs of a pull.
// Everything else (digests, records, labels) is the same as after a pull by Kubernetes,
// so the kubelet sees no difference. The result is the state that containerd's own
// discard_unpacked_layers leaves.
//
// It is the only package that uses containerd's API and the CRI.
package store
