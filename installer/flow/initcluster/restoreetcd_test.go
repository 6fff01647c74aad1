package initcluster

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"airlift/installer/backup"
	"airlift/installer/config"
	"airlift/installer/etcd"
	"airlift/installer/host"
	"airlift/installer/payload"
	"airlift/installer/phases"
	"airlift/installer/snapshot"
	"airlift/installer/workflow"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/port"
	"airlift/scripts/fixtures/rig"
	"airlift/scripts/fixtures/testhost"
)

// startEtcd starts a real etcd on loopback, without TLS, and returns a client.
func startEtcd(t *testing.T, name, dir string) (*etcd.Client, string) {
	t.Helper()
	ports, err := port.Free(2)
	if err != nil {
		t.Fatal(err)
	}
	urls := [2]string{fmt.Sprint("http://127.0.0.1:", ports[0]), fmt.Sprint("http://127.0.0.1:", ports[1])}
	cmd := exec.Command(rig.Component(t, "v1.37.1", "etcd"), "--name", name, "--data-dir", dir, "--log-level", "error",
		"--listen-client-urls", urls[0], "--advertise-client-urls", urls[0], "--listen-peer-urls", urls[1],
		"--initial-advertise-peer-urls", urls[1], "--initial-cluster", name+"="+urls[1])
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(200 * time.Millisecond) {
		c, err := etcd.Connect(t.Context(), urls[:1], nil, nil)
		if err == nil {
			t.Cleanup(func() { _ = c.Close() })
			return c, urls[0]
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// TestRestoreOfEtcd runs the steps of a restore with a backup of a real etcd, and starts etcd
// with the result.
func TestRestoreOfEtcd(t *testing.T) {
	etcdctl := rig.Component(t, "v1.37.1", "etcdctl")
	ctl := func(url string, args ...string) string {
		t.Helper()
		out, err := exec.Command(etcdctl, append([]string{"--endpoints", url}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return string(out)
	}
	c, url := startEtcd(t, "old", filepath.Join(t.TempDir(), "old"))
	for _, key := range []string{"/registry/a", "/registry/b", "/registry/c"} {
		ctl(url, "put", key, "value of "+key)
	}
	dir := t.TempDir()
	saved, file := filepath.Join(dir, "snapshot.db"), filepath.Join(dir, "backup.tar")
	out, err := os.Create(saved)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.Snapshot(t.Context(), out), out.Close()); err != nil {
		t.Fatal(err)
	}
	s, err := etcd.VerifySnapshot(saved)
	if err != nil || s.Keys != 3 {
		t.Fatalf("%+v %v", s, err)
	}
	var archive bytes.Buffer
	files := []backup.File{{Name: backup.ConfigName}, {Name: backup.PKIDir + "ca.crt", Data: []byte("ca")}, {Name: backup.PKIDir + "ca.key", Data: []byte("key")}}
	if err := backup.Write(&archive, backup.Manifest{Created: time.Now(), Snapshot: s}, saved, files); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, archive.Bytes()[:archive.Len()/2], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := snapshot.Open(t.Context(), file, nil); err == nil || fault.ExitCode(err) != fault.Bundle || !errors.Is(err, backup.ErrTruncated) {
		t.Errorf("half of the file: %v", err)
	}
	if err := os.WriteFile(file, archive.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := snapshot.Open(t.Context(), file, nil)
	if err != nil {
		t.Fatal(err)
	}

	h, err := host.OpenDirectory(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	p := &phases.Plan{Role: phases.FirstControlPlane, Bundle: new(payload.Bundle), Config: testhost.Config(func(c *config.Config) {
		c.Etcd.Local.DataDir, c.Images["etcd"] = "/var/lib/etcd", "registry.k8s.io/etcd:3.7.0-0"
	})}
	r := NewRestore(p, phases.InitOptions{}, f, h, &workflow.Console{Out: new(bytes.Buffer)})
	for range 2 { // the second run finds everything in place
		for _, step := range []string{"restore-certs", "restore-etcd"} {
			if err := workflow.RunPhase(t.Context(), r.Console, r.Steps(), step); err != nil {
				t.Fatal(err)
			}
		}
	}
	if data, err := os.ReadFile(h.Path("/etc/kubernetes/pki/ca.key")); err != nil || string(data) != "key" {
		t.Errorf("%q %v", data, err)
	}
	list, err := os.ReadDir(h.Path("/var/lib/etcd"))
	if err != nil || len(list) != 1 || list[0].Name() != "member" {
		t.Errorf("left in etcd's data directory: %v %v", list, err)
	}
	_, url = startEtcd(t, r.node.Config.NodeRegistration.Name, h.Path("/var/lib/etcd"))
	if got := ctl(url, "get", "--prefix", "/registry/"); strings.Count(got, "value of /registry/") != 3 {
		t.Error(got)
	}
	if got := ctl(url, "member", "list"); !strings.Contains(got, "https://10.1.2.3:2380") || strings.Count(got, "\n") != 1 {
		t.Error(got)
	}
}
