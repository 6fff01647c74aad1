// Package discovery finds the cluster that a node joins, and verifies its identity, as kubeadm's discovery does.
package discovery
