package noderemove

import (
	"bytes"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/workflow"
	"airlift/scripts/fixtures/testhost"
)

// TestRemoveMember removes a member from a real etcd, in the turn of this control plane. A repeated run
// finds nothing to do, and the last voting member stays.
func TestRemoveMember(t *testing.T) {
	root := t.TempDir()
	testhost.RunEtcd(t, root, "x")
	api := &testhost.LeaseAPI{}
	server := httptest.NewServer(api)
	defer server.Close()
	admin := testhost.OfServer(t, server.URL, false).Path(node.AdminConf)
	if err := os.Rename(admin, root+node.AdminConf); err != nil {
		t.Fatal(err)
	}
	h, unlock, err := host.OpenLocked(root)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	out := new(bytes.Buffer)
	r := &Removal{Machine: node.NewMachine(h, &workflow.Console{Out: out})}
	if r.etcd, _, err = node.LocalEtcdClient(t.Context(), r.Machine); err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	const peer = "https://127.0.0.1:1"
	members, _, err := r.etcd.AddLearner(t.Context(), peer)
	if err != nil || len(members) != 2 {
		t.Fatal(members, err)
	}
	for i, m := range members {
		if m.HasPeer(peer) {
			r.target.member = &members[i]
		}
	}
	for range 2 {
		if err := r.removeMember(t.Context()); err != nil {
			t.Fatal(err)
		}
		if api.Held() {
			t.Error("the turn was not given up")
		}
	}
	if strings.Count(out.String(), "removed member ") != 1 || len(api.Requests()) == 0 {
		t.Errorf("%q\n%s", api.Requests(), out)
	}
	left, err := r.etcd.Members(t.Context())
	if err != nil || len(left) != 1 {
		t.Fatal(left, err)
	}
	r.target.member = &left[0]
	if err := r.removeMember(t.Context()); err == nil || !strings.Contains(err.Error(), "last voting member") || api.Held() {
		t.Errorf("the last member: %v", err)
	}
}
