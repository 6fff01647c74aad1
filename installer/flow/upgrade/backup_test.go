package upgrade

import (
	"io"
	"testing"

	"airlift/bundle"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/payload"
	"airlift/installer/revision"
	"airlift/installer/workflow"
)

// TestRunsSaveBackups: the first run of an upgrade saves a backup, and each later one that is about to
// start an etcd of another minor version, which cannot be undone. All others would only fill the disk.
func TestRunsSaveBackups(t *testing.T) {
	h, unlock, err := host.OpenLocked(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	manifest := func(tag string) []byte {
		return []byte("spec: {containers: [{image: 'registry.k8s.io/etcd:" + tag + "'}]}\n")
	}
	if _, err := h.WriteFile(node.EtcdManifest, manifest("3.5.24-0"), 0o600); err != nil {
		t.Fatal(err)
	}
	u := New(&payload.Bundle{File: new(bundle.File), Manifest: &bundle.Manifest{KubernetesVersion: "v1.34.1"}}, Options{}, true, h, &workflow.Console{Out: io.Discard})
	u.Plans = map[string][]byte{node.EtcdPod: manifest("3.6.5-0")}
	u.Record = &revision.Record{Kind: revision.Upgrade, From: "v1.33.1", To: "v1.34.1"}
	if err := u.Record.Kept(h).Keep(node.EtcdManifest); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		before func()
		want   bool
	}{
		{"the first run", func() {}, true},
		{"the same run", func() { u.Record.Backup, u.backedUp = "/before.tar", true }, false},
		{"another run", func() { u.backedUp = false }, true},
		{"another run with an etcd of the same minor version", func() { u.Plans[node.EtcdPod] = manifest("3.5.26-0") }, false},
		{"another run after that etcd started", func() { u.Record.EtcdStarted = "registry.k8s.io/etcd:3.5.26-0" }, false},
		{"another run without etcd", func() { delete(u.Plans, node.EtcdPod) }, false},
		{"then one with a newer etcd", func() { u.Plans[node.EtcdPod] = manifest("3.6.5-0") }, true},
		{"another run after the newer etcd started", func() { u.Record.EtcdStarted = "registry.k8s.io/etcd:3.6.5-0" }, false},
		{"without a backup", func() { u.Record.Backup = "" }, true},
		{"of an upgrade to another version", func() { u.Record.Backup, u.Record.To = "/before.tar", "v1.33.1" }, true},
	} {
		c.before()
		if got, err := u.needsBackup(); err != nil || got != c.want {
			t.Errorf("%s: %t, %v", c.name, got, err)
		}
	}
}
