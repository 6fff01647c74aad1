package testhost

import (
	"bytes"
	"errors"
	"net"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"airlift/installer/config"
	"airlift/installer/pki"
	"airlift/installer/render"
	"airlift/scripts/rig"
)

// RunEtcd runs a real etcd with a control plane's certificates until the test ends. The directory root gets
// its static pod, as on a host that Airlift did not install. secret is the value of a Secret in it.
func RunEtcd(t *testing.T, root, secret string) {
	t.Helper()
	const version = "v1.37.1"
	cfg := &config.Config{Facts: config.Facts{Hostname: "one", NodeIP: "127.0.0.1"}, Images: map[string]string{"etcd": "etcd:1"}}
	cfg.KubernetesVersion = version
	cfg.CompleteInit()
	made, err := pki.Ensure(cfg, fstest.MapFS{}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	put := func(name string, data []byte) {
		t.Helper()
		name = filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, data, 0o600)); err != nil {
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
	put(path.Join(config.ManifestsDir, "etcd.yaml"), bytes.ReplaceAll(bytes.ReplaceAll(manifest, []byte("https://127.0.0.1:2379"), []byte(urls[0])), []byte("https://127.0.0.1:2380"), []byte(urls[1])))
	put(path.Join(config.KubernetesDir, "admin.conf"), nil) // no API server answers

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
		"--cacert", file("ca.crt"), "--cert", file("healthcheck-client.crt"), "--key", file("healthcheck-client.key"), "put", "/registry/secrets/one", secret)
	if out, err := ctl.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}
