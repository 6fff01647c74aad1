// Package cluster is the client of the Kubernetes API: it connects, applies objects, and manages Nodes, bootstrap
// tokens and the Secret with the certificates. Only it and the packages below it use the clients of client-go.
//
// Every function may run twice: it reads first and writes only differences. It uses the objects,
// names and formats of kubeadm v1.29, so that Airlift can work on kubeadm's clusters, and kubeadm
// on Airlift's.
package cluster
