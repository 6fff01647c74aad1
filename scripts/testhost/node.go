package testhost

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"airlift/images/store"
	"airlift/installer/config"
	"airlift/scripts/rig"
)

// Node returns the root directory of a node that Airlift installed, whose kubelet uses a real
// containerd.
func Node(t *testing.T) (root string) {
	t.Helper()
	rig.Root(t) // to run a containerd
	dir, err := os.MkdirTemp("/var/tmp", "airlift-node-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	containerd := rig.Component(t, "v1.29.15", "containerd")
	socket := filepath.Join(dir, "c.sock")
	configuration := fmt.Sprintf(`version = 3
root = %q
state = %q
[grpc]
address = %q
[ttrpc]
address = %q
[plugins."io.containerd.nri.v1.nri"]
disable = true
[plugins."io.containerd.internal.v1.opt"]
path = %q
[plugins."io.containerd.cri.v1.images"]
snapshotter = "native"
[plugins."io.containerd.cri.v1.runtime".cni]
conf_dir = %q
`, filepath.Join(dir, "root"), filepath.Join(dir, "state"), socket, socket+".ttrpc", filepath.Join(dir, "opt"), filepath.Join(dir, "net.d"))
	cfg := filepath.Join(dir, "config.toml")
	write := func(path, text string, mode os.FileMode) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	write(cfg, configuration, 0o600)
	cmd := exec.Command(containerd, "--config", cfg)
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(containerd)+":"+filepath.Dir(rig.Component(t, "v1.29.15", "runc"))+":"+os.Getenv("PATH"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	s, err := store.Connect(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	root = filepath.Join(dir, "host")
	write(filepath.Join(root, config.KubernetesDir, "kubelet.conf"), "kubelet", 0o600)
	write(filepath.Join(root, config.KubeletConfigFile), "containerRuntimeEndpoint: unix:///nonexistent\n", 0o600)
	write(filepath.Join(root, config.KubeletFlagsFile), `KUBELET_KUBEADM_ARGS="--a=b --container-runtime-endpoint=unix://`+socket+" --c=d\"\n", 0o600)
	write(filepath.Join(root, socket), "", 0o600) // the host's paths are below root, but the socket is not
	write(filepath.Join(root, "usr/local/bin/kubelet"), "#!/bin/sh\necho Kubernetes v1.36.2\n", 0o755)
	if _, err := Open(t, root).WriteFile("/etc/some", []byte("x"), 0o644); err != nil { // as init does
		t.Fatal(err)
	}
	return root
}
