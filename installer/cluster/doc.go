// Package cluster does what talks to a Kubernetes API: it applies objects,
// finds and trusts a cluster to join, handles bootstrap tokens and the
// certificates' Secret, and waits. It is the only importer of client-go.
//
// Every function may run twice: it looks first and writes only what differs.
// Objects, names and formats are those of kubeadm v1.29, so that a cluster
// made here and one made by kubeadm can be used with either.
package cluster
