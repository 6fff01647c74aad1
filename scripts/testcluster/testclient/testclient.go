// Package testclient has clients of package cluster for the tests of the packages above it.
package testclient

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"airlift/installer/cluster"
	"airlift/installer/render"
	"airlift/scripts/testcluster"
)

// Fake returns a client whose typed and dynamic interfaces share one store, and a function that returns what
// it has written since the last call: "create secrets".
func Fake(objects ...runtime.Object) (*cluster.Client, func() []string) {
	api, dyn, writes := testcluster.Fake(objects...)
	return &cluster.Client{API: api, Dynamic: dyn}, writes
}

// Super returns a client with the rights of system:masters.
func Super(t *testing.T, p *testcluster.ControlPlane) *cluster.Client {
	t.Helper()
	return testcluster.Must(cluster.Load(p.Super, ""))(t)
}

// Initialized sets the cluster up so that a node can join, and returns the client of an administrator.
func Initialized(t *testing.T, p *testcluster.ControlPlane) *cluster.Client {
	t.Helper()
	admin := testcluster.Must(cluster.Load(p.Admin, ""))(t)
	testcluster.Must(cluster.EnsureAdmin(testcluster.Within(t), admin, Super(t, p), render.ClusterAdmins()))(t)
	p.Init(t, admin.Apply)
	return admin
}
