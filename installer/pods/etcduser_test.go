package pods

import (
	"bytes"
	"os"
	"testing"
	"time"

	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/pki"
	"airlift/installer/profile"
	"airlift/installer/render"
	"airlift/installer/workflow"
	"airlift/scripts/fixtures/rig"
	"airlift/scripts/fixtures/testhost"
)

// TestReplacedEtcdHasItsFiles: an upgrade of a hardened cluster prepares etcd's user before it writes the manifest, after the previous
// etcd, which may have run as root, has written its last file.
func TestReplacedEtcdHasItsFiles(t *testing.T) {
	rig.Root(t)
	rig.Tool(t, "systemd-sysusers")
	s := &StaticPods{Machine: node.NewMachine(testhost.Open(t, t.TempDir()), &workflow.Console{Out: new(bytes.Buffer)})}
	cfg := testhost.Config(nil)
	if _, err := profile.Apply(profile.Hardened, cfg); err != nil {
		t.Fatal(err)
	}
	made, err := pki.Ensure(cfg, s.Files(), time.Now())
	if err == nil {
		err = s.Write(made.Files...)
	}
	if err == nil {
		err = s.Host.MkdirAll(cfg.Etcd.Local.DataDir+"/member/wal", 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	pod, err := s.EtcdPod(cfg)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := render.YAML(pod)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.prepare(t.Context(), "kube-apiserver", manifest); err != nil || s.Exists(node.EtcdFiles) {
		t.Error("another component prepares etcd", err)
	}
	s.Starts = func(string) error {
		for _, file := range []string{node.EtcdFiles + "/server.key", cfg.Etcd.Local.DataDir + "/member/wal"} {
			if info, err := os.Stat(s.Host.Path(file)); err != nil {
				t.Error(err)
			} else if account, _, _, err := s.Host.FindAccount(host.EtcdAccount); err != nil || host.OwnerOf(info) != account {
				t.Errorf("%s belongs to %v, want %v, %v", file, host.OwnerOf(info), account, err)
			}
		}
		return nil
	}
	if err := s.prepare(t.Context(), node.EtcdPod, manifest); err != nil {
		t.Error(err)
	}
}
