// Package cluster is the client of the Kubernetes API: it connects, applies objects, and manages Nodes, bootstrap
// tokens and the Secret with the certificates. Only it and the packages below it use the clients of client-go.
//
// Every function may run twice: it reads first and writes only differences. Objects, names and formats are those of
// kubeadm v1.29, so that Airlift and kubeadm can work on each other's clusters.
package cluster
