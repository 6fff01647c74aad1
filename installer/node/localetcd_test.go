package node

import (
	"os"
	"slices"
	"testing"

	"airlift/installer/render"
	"airlift/scripts/fixtures/testhost"
)

// A second run of join renders etcd's static pod with the members that the first has written.
func TestWrittenMembers(t *testing.T) {
	want := []render.EtcdMember{{Name: "zero", PeerURL: "https://10.1.2.2:2380"}, {Name: "one", PeerURL: "https://[fd00::3]:2380"}}
	h, _ := testhost.ControlPlane(t, nil, want...)
	if got := WrittenMembers(h); !slices.Equal(got, want) {
		t.Errorf("members %v, want %v", got, want)
	}
	for _, content := range []string{"", "kind: [Pod", "kind: Pod\nspec: {containers: [{name: etcd, command: [etcd, --no-such-flag]}]}\n"} {
		if err := os.WriteFile(h.Path(EtcdManifest), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := WrittenMembers(h); got != nil {
			t.Errorf("%q: members %v, want none", content, got)
		}
	}
}
