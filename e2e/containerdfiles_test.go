//go:build e2e

package e2e

import (
	"strings"
	"testing"

	"airlift/scripts/lab"
)

// Files that other software writes for containerd. toolkitFile is what NVIDIA's toolkit wrote for containerd 1.x: it copied the tables of
// the CRI (nvidia-container-toolkit#1222). addedRuntime only adds a runtime.
const (
	toolkitFile = `version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "registry.k8s.io/pause:3.6"
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "/usr/lib/cni"
`
	addedRuntime = `version = 3
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.other]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.other.options]
  SystemdCgroup = SYSTEMD
`
	badFile   = "/etc/containerd/conf.d/99-nvidia.toml"
	otherFile = "/etc/containerd/conf.d/50-other.toml"
	lostFile  = "/etc/containerd/config.d/99-nvidia.toml"
)

// put writes a file on a host.
func put(t *testing.T, h *lab.Host, file, text string) {
	t.Helper()
	if err := h.Exec(t.Context(), strings.NewReader(text), t.Output(), t.Output(), "sh", "-c", "mkdir -p $(dirname "+file+") && cat >"+file); err != nil {
		t.Fatal(err)
	}
}

// TestContainerdFiles puts files of other software on a host. Each command that would restart containerd refuses before anything
// changes, and names the file; status and doctor name it on a running node. That the check is right is shown by containerd itself,
// which is restarted by hand with the file.
func TestContainerdFiles(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-containerdfiles", Hosts: 1})
	h := s.Hosts[0]
	to := carryNewer(t, h)
	// Everything that a refused command must leave alone: processes, files, and when systemd read its units.
	state := func(t *testing.T) string {
		t.Helper()
		return run(t, h, "sh", "-c", `systemctl show -p MainPID containerd kubelet; systemctl show -p UnitsLoadTimestampMonotonic
			sha256sum /usr/local/bin/* /etc/containerd/config.toml /var/lib/kubelet/config.yaml /etc/kubernetes/manifests/* 2>/dev/null; ls /etc/kubernetes /var/lib/airlift 2>/dev/null; true`)
	}
	units := func(t *testing.T) string {
		t.Helper()
		return run(t, h, "systemctl", "show", "-p", "UnitsLoadTimestampMonotonic")
	}
	inOrder(t, s, []stage{
		{"init refuses a bad file", func(t *testing.T) {
			put(t, h, badFile, toolkitFile)
			before := state(t)
			contains(t, install(t, h, 3, "init"), "ContainerdFiles", badFile, "pause:3.6", "/usr/lib/cni", "mv "+badFile)
			same(t, before, state(t))
			run(t, h, "rm", badFile)
		}},
		{"init accepts a runtime", func(t *testing.T) {
			systemd := strings.TrimSpace(run(t, h, "sh", "-c", "test -e /sys/fs/cgroup/cgroup.controllers && echo true || echo false"))
			put(t, h, otherFile, strings.ReplaceAll(addedRuntime, "SYSTEMD", systemd))
			install(t, h, 0, "init")
			systemIsUp(t, s, 1)
			contains(t, run(t, h, "containerd", "config", "dump"), "runtimes.other")
		}},
		{"a second init reloads nothing", func(t *testing.T) {
			before := units(t)
			install(t, h, 0, "init")
			same(t, before, units(t))
		}},
		{"status and doctor name a bad file", func(t *testing.T) {
			put(t, h, badFile, toolkitFile)
			put(t, h, lostFile, toolkitFile)
			contains(t, install(t, h, 1, "status"), badFile, "would not serve this node", lostFile, "does not read this file")
			out, _ := h.Output(t.Context(), "/root/install", "doctor", "/root/doctor.tar.gz")
			contains(t, out, badFile, lostFile)
			run(t, h, "rm", lostFile)
		}},
		{"upgrade refuses it", func(t *testing.T) {
			before := state(t)
			contains(t, newer(t, h, 3, "upgrade", "plan"), "ContainerdFiles", badFile)
			contains(t, newer(t, h, 3, "upgrade", "apply", "--yes"), "ContainerdFiles", badFile)
			same(t, before, state(t))
		}},
		{"a change that does not restart containerd warns, and reloads nothing", func(t *testing.T) {
			put(t, h, "/root/kubelet.yaml", "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 123\n")
			before := units(t)
			contains(t, install(t, h, 0, "reconfigure", "--config", "/root/kubelet.yaml", "--yes"), badFile)
			same(t, before, units(t))
			install(t, h, 0, "reconfigure", "undo", "--yes")
		}},
		{"containerd itself shows that the file ends the node", func(t *testing.T) {
			run(t, h, "systemctl", "restart", "containerd")
			kubectl(t, s, "run", "late", "--image=registry.k8s.io/pause:3.10", "--restart=Never", `--overrides={"spec":{"nodeName":"`+h.Name+`"}}`)
			run(t, h, "sleep", "20")
			contains(t, kubectl(t, s, "get", "events", "--field-selector", "involvedObject.name=late"), "FailedCreatePodSandBox")
			kubectl(t, s, "delete", "pod", "late", "--now")
			put(t, h, badFile, "version = 9\n")
			contains(t, install(t, h, 1, "status"), badFile, "does not start")
			if out, err := h.Output(t.Context(), "systemctl", "restart", "containerd"); err == nil {
				t.Errorf("containerd starts with a file of version 9: %s", out)
			}
			run(t, h, "rm", badFile)
			run(t, h, "systemctl", "restart", "containerd")
			systemIsUp(t, s, 1)
		}},
		{"without it, the upgrade goes on", func(t *testing.T) {
			newer(t, h, 0, "upgrade", "apply", "--yes")
			contains(t, run(t, h, "/usr/local/bin/kubelet", "--version"), to)
			systemIsUp(t, s, 1)
		}},
		{"reset leaves the files of others", func(t *testing.T) {
			newer(t, h, 0, "reset", "--force")
			contains(t, run(t, h, "cat", otherFile), "runtimes.other")
		}},
	})
}
