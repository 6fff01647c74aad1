// Package cluster uses the Kubernetes API: it applies objects, discovers and
// verifies a cluster to join, manages bootstrap tokens and the Secret with the
// certificates, and waits. No other package imports client-go.
//
// Every function may run twice: it reads first and writes only differences.
// Objects, names and formats are those of kubeadm v1.29, so that Airlift and
// kubeadm can work on each other's clusters.
package cluster
