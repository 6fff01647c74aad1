package cluster

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"airlift/installer/render"
	"airlift/scripts/fixtures/testcluster"
)

func TestMain(m *testing.M) { testcluster.Main(m) }

// superAdmin returns a client with the rights of system:masters.
func superAdmin(t *testing.T, p *testcluster.ControlPlane) *Client {
	t.Helper()
	return testcluster.Must(Load(p.Super, ""))(t)
}

// initialized sets the cluster up so that a node can join, and returns the client of an administrator.
func initialized(t *testing.T, p *testcluster.ControlPlane) *Client {
	t.Helper()
	admin := testcluster.Must(Load(p.Admin, ""))(t)
	testcluster.Must(EnsureAdmin(testcluster.Within(t), admin, superAdmin(t, p), render.ClusterAdmins()))(t)
	p.Init(t, admin.Apply)
	return admin
}

// fakeClient returns a client that records its requests. Its typed and dynamic interfaces share one store.
func fakeClient(objects ...runtime.Object) (*Client, func() []string) {
	api, dyn, writes := testcluster.Fake(objects...)
	return &Client{API: api, Dynamic: dyn}, writes
}
