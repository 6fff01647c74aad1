package phases

import (
	"io"
	"testing"

	"airlift/bundle"
	"airlift/installer/config"
	"airlift/installer/etcd"
	"airlift/installer/node"
	"airlift/installer/payload"
	"airlift/installer/workflow"
	"airlift/scripts/fixtures/testhost"
)

// TestSpaceForRestore: a snapshot that does not fit is refused before anything is written.
func TestSpaceForRestore(t *testing.T) {
	cfg := testhost.Config(func(c *config.Config) { c.Facts.DefaultRoute = true })
	m := node.NewMachine(testhost.Open(t, t.TempDir()), &workflow.Console{Out: io.Discard})
	n := NewNode(&Plan{Role: FirstControlPlane, Bundle: &payload.Bundle{Manifest: &bundle.Manifest{}}, Config: cfg}, m)
	bytesFor := func(size int64) uint64 {
		n.Restored = &etcd.Snapshot{Size: size}
		list, err := n.diskSpace(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range list {
			if s.Path == cfg.Etcd.Local.DataDir {
				return s.Bytes
			}
		}
		t.Fatalf("etcd is not in %+v", list)
		return 0
	}
	if more := bytesFor(1<<40) - bytesFor(0); more != 2<<40 {
		t.Errorf("a snapshot of 1 TiB needs %d bytes more", more)
	}
}
