package phases

import (
	"bytes"
	"path"
	"slices"
	"testing"

	"airlift/bundle"
	"airlift/images/store"
	"airlift/installer/config"
	"airlift/installer/node"
	"airlift/installer/payload"
	"airlift/installer/workflow"
	"airlift/scripts/fixtures/testhost"
)

// bytesBelow returns the needed bytes by directory.
func bytesBelow(t *testing.T, n *Node) map[string]uint64 {
	t.Helper()
	list, err := n.diskSpace(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	sums := map[string]uint64{}
	for _, s := range list {
		sums[s.Path] += s.Bytes
	}
	return sums
}

func TestDiskSpaceByDirectory(t *testing.T) {
	base := bundle.Layer{DiffID: "sha256:base", Size: 100}
	manifest := &bundle.Manifest{
		Entries: []bundle.Entry{{Name: "bin/runc", Size: 10}, {Name: "bin/kubelet", Size: 20}, {Name: "cni/bridge", Size: 30}, {Name: "cni/portmap", Size: 40}},
		Images: []bundle.Image{
			{Name: "etcd", Layers: []bundle.Layer{base, {DiffID: "sha256:etcd", Size: 7}}},
			{Name: "kube-proxy", Layers: []bundle.Layer{base, {DiffID: "sha256:proxy", Size: 5}}},
		},
	}
	newHost := func(t *testing.T, role Role, change func(*Node)) *Node {
		cfg := &config.Config{Facts: config.Facts{DefaultRoute: true}}
		n := NewNode(&Plan{Role: role, Bundle: &payload.Bundle{Manifest: manifest}, Config: cfg}, node.NewMachine(testhost.Open(t, t.TempDir()), &workflow.Console{Out: new(bytes.Buffer)}))
		if change != nil {
			change(n)
		}
		return n
	}
	for name, c := range map[string]struct {
		node *Node
		want map[string]uint64 // 0: no space may be counted there
	}{
		"init": {newHost(t, FirstControlPlane, nil), map[string]uint64{
			"/usr/local/sbin": 10, "/usr/local/bin": 20, "/opt/cni/bin": 70, "/var/lib/containerd": 112, "/var/lib/etcd": etcdBytes,
			"/var/lib/kubelet": SmallBytes, "/etc/kubernetes": SmallBytes, "/var/lib/airlift": SmallBytes}},
		"a worker has no etcd": {newHost(t, Worker, nil), map[string]uint64{
			"/var/lib/containerd": 105, "/var/lib/etcd": 0, "/usr/local/bin": 20}},
		"a worker has the etcd that the user named": {newHost(t, Worker, func(n *Node) {
			named := *manifest
			named.Images = slices.Clone(manifest.Images)
			named.Images[0].EveryNode = true
			n.Plan.Bundle = &payload.Bundle{Manifest: &named}
		}), map[string]uint64{"/var/lib/containerd": 112, "/var/lib/etcd": 0}},
		"etcd's data elsewhere": {newHost(t, NextControlPlane, func(n *Node) { n.Config.Etcd.Local.DataDir = "/data/etcd" }),
			map[string]uint64{"/data/etcd": etcdBytes, "/var/lib/etcd": 0}},
		"an external etcd": {newHost(t, FirstControlPlane, func(n *Node) { n.Config.Etcd.External = &config.ExternalEtcd{} }),
			map[string]uint64{"/var/lib/etcd": 0}},
		"the host's own containerd, elsewhere": {newHost(t, FirstControlPlane, func(n *Node) {
			n.Observed.Runtime = &node.ExistingRuntime{Info: store.Info{ImageDir: "/data/containerd/io.containerd.snapshotter.v1.overlayfs"}}
			n.Plan.Bundle = &payload.Bundle{Manifest: &bundle.Manifest{}}
		}), map[string]uint64{"/data/containerd/io.containerd.snapshotter.v1.overlayfs": 0, "/var/lib/containerd": 0, "/usr/local/sbin": 0}},
		"what is there already": {newHost(t, FirstControlPlane, func(n *Node) {
			for _, file := range []string{"/usr/local/bin/kubelet", "/var/lib/etcd/member/snap/db"} {
				if _, err := n.Host.WriteFile(file, nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			n.Observed.IsNode = true
		}), map[string]uint64{"/usr/local/bin": 0, "/usr/local/sbin": 10, "/var/lib/etcd": 0, "/var/lib/containerd": 0}},
	} {
		t.Run(name, func(t *testing.T) {
			got := bytesBelow(t, c.node)
			for dir, want := range c.want {
				if got[dir] != want {
					t.Errorf("%s: %d bytes, want %d", dir, got[dir], want)
				}
			}
		})
	}
	// The image directory is checked even if no bytes are counted for it.
	n := newHost(t, FirstControlPlane, func(n *Node) {
		n.Observed.Runtime, n.Plan.Bundle = &node.ExistingRuntime{Info: store.Info{ImageDir: "/data/images"}}, &payload.Bundle{Manifest: &bundle.Manifest{}}
	})
	if _, ok := bytesBelow(t, n)["/data/images"]; !ok {
		t.Errorf("%s is not looked at", path.Base("/data/images"))
	}
}
