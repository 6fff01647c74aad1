package node_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/render"
	"airlift/scripts/fixtures/rig"
	"airlift/scripts/fixtures/testcluster"
	"airlift/scripts/fixtures/testhost"
)

// ownContainerd returns a host with Airlift's containerd and its configuration.
func ownContainerd(t *testing.T) *host.Host {
	t.Helper()
	h := testhost.Open(t, t.TempDir())
	binary := rig.Component(t, "v1.29.15", "containerd")
	if err := os.MkdirAll(h.Path("/usr/local/bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(binary, h.Path(node.ContainerdPath)); err != nil {
		t.Fatal(err)
	}
	if err := h.Records().SetOwnsRuntime(); err != nil {
		t.Fatal(err)
	}
	cfg := testhost.Config(nil)
	cfg.Images["pause"] = "registry.k8s.io/pause:3.10.1"
	settings, err := render.ContainerdConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.WriteFile(render.ContainerdConfigPath, settings, 0o644); err != nil {
		t.Fatal(err)
	}
	return h
}

// TestContainerdFiles compares Airlift's own configuration, alone and with files of others.
func TestContainerdFiles(t *testing.T) {
	h := ownContainerd(t)
	write := func(file, text string) {
		t.Helper()
		if err := os.MkdirAll(h.Path("/etc/containerd/conf.d"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(h.Path(file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(what string, parts ...string) {
		t.Helper()
		list, err := node.ContainerdFiles(t.Context(), h)
		if err != nil || len(list) != min(len(parts), 1) {
			t.Fatalf("%s: %+v, %v", what, list, err)
		}
		for _, part := range parts {
			if !strings.Contains(list[0].Message, part) {
				t.Errorf("%s: %q does not have %q", what, list[0].Message, part)
			}
		}
	}
	expect("alone")
	const added = "/etc/containerd/conf.d/10-site.toml"
	write(added, "version = 3\n[plugins.'io.containerd.cri.v1.runtime']\nmax_container_log_line_size = 32768\n")
	expect("a harmless file")
	write(added, "version = 2\n[plugins.'io.containerd.grpc.v1.cri']\nsandbox_image = 'example.com/pause:1'\n")
	expect("another pause image", added, "example.com/pause:1")

	// The file that will be written decides, and not the one on the disk.
	settings, err := os.ReadFile(h.Path(render.ContainerdConfigPath))
	if err != nil {
		t.Fatal(err)
	}
	broken := map[string][]byte{added: []byte("version = 3\n"), render.ContainerdConfigPath: settings}
	if list, err := node.OwnContainerdFiles(t.Context(), h, node.Installed(h), broken); err != nil || len(list) != 0 {
		t.Errorf("the file is replaced: %+v, %v", list, err)
	}
	broken = map[string][]byte{"/etc/containerd/conf.d/20.toml": []byte("version = 9\n"), added: nil, render.ContainerdConfigPath: settings}
	if list, err := node.OwnContainerdFiles(t.Context(), h, node.Installed(h), broken); err != nil || len(list) != 1 || !strings.Contains(list[0].Message, "/20.toml") {
		t.Errorf("a file that will be written: %+v, %v", list, err)
	}
}

// An edited configuration file is compared with the kubelet's cgroup driver and socket.
func TestEditedContainerdFile(t *testing.T) {
	h := ownContainerd(t)
	settings, err := os.ReadFile(h.Path(render.ContainerdConfigPath))
	if err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{
		"/var/lib/kubelet/config.yaml": "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncgroupDriver: systemd\n",
		render.ContainerdConfigPath:    strings.Replace(string(settings), "SystemdCgroup = true", "SystemdCgroup = false", 1),
	} {
		if err := os.MkdirAll(h.Path("/var/lib/kubelet"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(h.Path(file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	list, err := node.ContainerdFiles(t.Context(), h)
	if err != nil || len(list) != 1 || list[0].Warning || list[0].File != render.ContainerdConfigPath || !strings.Contains(list[0].Message, "cgroup driver is systemd") {
		t.Errorf("%+v, %v", list, err)
	}
}

// TestSnapshotterOfNode: a file that changes the snapshotter ends a node that runs, and not a host without images.
func TestSnapshotterOfNode(t *testing.T) {
	h := ownContainerd(t)
	dir, err := os.MkdirTemp("/var/tmp", "airlift-node-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := dir + "/c.sock"
	for file, text := range map[string]string{
		h.Path("/etc/containerd/conf.d/a.toml"): "version = 3\n[plugins.'io.containerd.cri.v1.images']\nsnapshotter = 'native'\n",
		h.Path(config.KubeletFlagsFile):         "KUBELET_KUBEADM_ARGS=\"--container-runtime-endpoint=unix://" + socket + "\"\n",
		dir + "/config.toml": fmt.Sprintf("version = 3\nroot = %q\nstate = %q\ndisabled_plugins = ['io.containerd.cri.v1.images', 'io.containerd.cri.v1.runtime', 'io.containerd.grpc.v1.cri', 'io.containerd.nri.v1.nri']\n[grpc]\naddress = %q\n[ttrpc]\naddress = %q\n[plugins.'io.containerd.internal.v1.opt']\npath = %q\n",
			dir+"/root", dir+"/state", socket, socket+".ttrpc", dir+"/opt"),
	} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if list, err := node.ContainerdFiles(t.Context(), h); err != nil || len(list) != 0 {
		t.Errorf("no containerd runs: %+v, %v", list, err)
	}
	c := exec.CommandContext(t.Context(), h.Path(node.ContainerdPath), "--config", dir+"/config.toml")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	testcluster.Eventually(t, func() bool { _, err := os.Stat(socket); return err == nil })
	if err := errors.Join(os.MkdirAll(h.Path(dir), 0o755), os.WriteFile(h.Path(socket), nil, 0o600)); err != nil { // below the directory of the host
		t.Fatal(err)
	}
	testcluster.Eventually(t, func() bool {
		list, err := node.ContainerdFiles(t.Context(), h)
		return err == nil && len(list) == 1 && !list[0].Warning && strings.Contains(list[0].Message, `the snapshotter is "native", and the images of this node are unpacked in overlayfs`)
	})
}
