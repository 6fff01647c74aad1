// Package store puts images into containerd. Layers go straight from the
// bundle's stream into snapshots; the compressed blobs a pull would keep are
// never written. Everything else (digests, records, labels) is as after a pull
// by Kubernetes, so the kubelet sees no difference. The state is the one that
// containerd's own discard_unpacked_layers leaves behind.
//
// It is the only package that knows containerd's API and the CRI.
package store
