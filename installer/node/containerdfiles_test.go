package node_test

import (
	"os"
	"strings"
	"testing"

	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/render"
	"airlift/scripts/fixtures/rig"
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
