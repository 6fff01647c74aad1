package installer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"filippo.io/age"

	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/pki"
	"airlift/installer/render"
	"airlift/scripts/crash"
	"airlift/scripts/rig"
)

// snapshotVariable makes the test binary save an encrypted backup of the etcd of the host in a directory.
const snapshotVariable = "AIRLIFT_TEST_SNAPSHOT"

func init() {
	recipient, root, ok := strings.Cut(os.Getenv(snapshotVariable), "\n")
	if !ok {
		return
	}
	to, err := age.ParseX25519Recipient(recipient)
	if err == nil {
		var h *host.Host
		if h, err = host.Open(filepath.Join(root, "host")); err == nil {
			b := NewBackup(h, &Console{Out: io.Discard})
			b.Recipients = []age.Recipient{to}
			err = b.Save(context.Background(), filepath.Join(root, "drive", "cluster.tar.age"), false)
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// controlPlaneEtcd starts a real etcd with a control plane's certificates, and describes it in the directory
// of a host that Airlift did not install. The etcd has a Secret.
func controlPlaneEtcd(t *testing.T, root string) {
	t.Helper()
	const version = "v1.37.1"
	cfg := &config.Config{Facts: config.Facts{Hostname: "one", NodeIP: "127.0.0.1"}, Images: map[string]string{"etcd": "etcd:1"}}
	cfg.KubernetesVersion = version
	cfg.CompleteInit()
	made, err := pki.Ensure(cfg, fstest.MapFS{}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	put := func(path string, data []byte) {
		t.Helper()
		path = filepath.Join(root, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, data, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range made.Files {
		put(f.Path, f.Data)
	}
	var urls [2]string
	for i := range urls {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		urls[i] = "https://" + l.Addr().String()
		l.Close()
	}
	pod, err := render.Etcd(cfg)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := render.YAML(pod)
	if err != nil {
		t.Fatal(err)
	}
	put(etcdManifest, bytes.ReplaceAll(bytes.ReplaceAll(manifest, []byte("https://127.0.0.1:2379"), []byte(urls[0])), []byte("https://127.0.0.1:2380"), []byte(urls[1])))
	put(adminConf, nil) // no API server answers

	file := func(name string) string { return filepath.Join(root, "etc/kubernetes/pki/etcd", name) }
	cmd := exec.Command(rig.Component(t, version, "etcd"), "--name", "one", "--data-dir", t.TempDir(), "--log-level", "error",
		"--listen-client-urls", urls[0], "--advertise-client-urls", urls[0], "--listen-peer-urls", urls[1], "--initial-advertise-peer-urls", urls[1], "--initial-cluster", "one="+urls[1],
		"--cert-file", file("server.crt"), "--key-file", file("server.key"), "--trusted-ca-file", file("ca.crt"), "--client-cert-auth",
		"--peer-cert-file", file("peer.crt"), "--peer-key-file", file("peer.key"), "--peer-trusted-ca-file", file("ca.crt"), "--peer-client-cert-auth")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	ctl := exec.Command(rig.Component(t, version, "etcdctl"), "--endpoints", urls[0], "--command-timeout", "30s", "--dial-timeout", "30s",
		"--cacert", file("ca.crt"), "--cert", file("healthcheck-client.crt"), "--key", file("healthcheck-client.key"), "put", "/registry/secrets/one", plainSecret)
	if out, err := ctl.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// TestKilledSnapshot kills an encrypted backup on a host without a ledger, while it saves the snapshot of a
// real etcd. No plain data is left, neither on the drive nor on the host.
func TestKilledSnapshot(t *testing.T) {
	rig.Needs(t, "ptrace")
	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	controlPlaneEtcd(t, filepath.Join(root, "host"))
	if err := errors.Join(os.Mkdir(filepath.Join(root, "drive"), 0o700), os.MkdirAll(filepath.Join(root, "host", "var", "lib"), 0o755)); err != nil {
		t.Fatal(err)
	}
	points, written := 0, false
	for killed := true; killed; {
		points++
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), snapshotVariable+"="+key.Recipient().String()+"\n"+root)
		was, err := crash.Run(cmd, crash.Numbered(points, func(c crash.Call) bool {
			written = written || c.Name == "write" && strings.Contains(c.Path, "airlift-scratch")
			return strings.HasPrefix(c.Path, root)
		}))
		if err != nil && !strings.Contains(err.Error(), "exit code 1") {
			t.Fatal(err)
		}
		killed = was
		noPlainData(t, root, key)
		if list, err := os.ReadDir(filepath.Join(root, "drive")); err != nil || len(list) > 0 {
			t.Errorf("call %d: on the drive: %v, %v", points, list, err)
		}
	}
	if !written {
		t.Error("the snapshot was never written")
	}
	if _, err := os.Lstat(filepath.Join(root, "host", host.StateDir)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is left on the host: %v", host.StateDir, err)
	}
	t.Logf("killed at %d calls", points-1)
}
