package uninstall_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"airlift/installer/host/ledger"
	"airlift/installer/host/uninstall"
	"airlift/scripts/fixtures/rig"
	"airlift/scripts/fixtures/testhost"
)

// inMounts runs the rest of the test in a new mount namespace.
func inMounts(t *testing.T) {
	t.Helper()
	rig.Root(t) // to create a mount namespace
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		t.Fatalf("making a mount namespace: %v", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		t.Fatal(err)
	}
}

func tmpfs(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }) // most are unmounted by then
}

func mounted(t *testing.T, below string) []string {
	t.Helper()
	data, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, line := range strings.Split(string(data), "\n") {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], below+"/") {
			found = append(found, strings.TrimPrefix(f[4], below))
		}
	}
	return found
}

func TestUnmount(t *testing.T) {
	inMounts(t)
	root := t.TempDir()
	volume := root + "/var/lib/kubelet/pods/1/volumes/a"
	tmpfs(t, root+"/var/lib/kubelet") // a separate disk
	tmpfs(t, volume)
	tmpfs(t, volume+"/nested")
	tmpfs(t, volume) // mounted twice
	tmpfs(t, root+"/var/lib/kubelet-other")
	tmpfs(t, root+"/run/containerd/io.containerd.runtime.v2.task/k8s.io/x/rootfs")
	busy, err := os.Create(volume + "/open")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	for _, name := range []string{"/run/netns/cni-1234", "/run/netns/mine"} {
		testhost.Write(t, root+name, "", 0o444)
		if err := unix.Mount("/proc/self/ns/net", root+name, "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(root+name, unix.MNT_DETACH) })
	}
	testhost.Write(t, root+"/run/netns/cni-other", "", 0o444) // an unrelated file with a CNI-like name
	testhost.Write(t, root+"/run/netns/cni-stale", "", 0o444)
	testhost.Write(t, root+"/var/lib/cni/results/cbr0-pod1-eth0", `{"kind": "cniCacheV1", "containerId": "pod1", "networkName": "cbr0", "netns": "/var/run/netns/cni-1234"}`, 0o600)
	testhost.Write(t, root+"/run/containerd/io.containerd.runtime.v2.task/k8s.io/x/config.json", `{"linux": {"namespaces": [{"type": "network", "path": "/var/run/netns/cni-stale"}]}}`, 0o600)

	h := testhost.Open(t, root)
	for range 2 {
		if err := uninstall.Unmount(context.Background(), h); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(mounted(t, root)); got != 8 {
		t.Errorf("without a ledger %d mounts are left of 8: %v", got, mounted(t, root))
	}
	claims := `{"version": 1, "entries": [
		{"kind": "contents", "name": "/var/lib/kubelet"}, {"kind": "network", "name": "cbr0"}`
	testhost.Write(t, root+ledger.Path, claims+"]}", 0o600)
	h = testhost.Open(t, root)
	for range 2 {
		if err := uninstall.Unmount(context.Background(), h); err != nil {
			t.Fatal(err)
		}
	}
	want := "/var/lib/kubelet /var/lib/kubelet-other /run/containerd/io.containerd.runtime.v2.task/k8s.io/x/rootfs /run/netns/mine"
	if got := strings.Join(mounted(t, root), " "); got != want {
		t.Errorf("still mounted:\n%s\nwant:\n%s", got, want)
	}
	if left, _ := filepath.Glob(root + "/run/netns/*"); len(left) != 2 || filepath.Base(left[0]) != "cni-other" || filepath.Base(left[1]) != "mine" {
		t.Errorf("namespaces: %v", left)
	}
	testhost.Write(t, root+ledger.Path, claims+`, {"kind": "owned", "name": "/run/containerd"}]}`, 0o600)
	h = testhost.Open(t, root)
	if err := uninstall.Unmount(context.Background(), h); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(mounted(t, root), " "); strings.Contains(got, "containerd") {
		t.Errorf("our own runtime's mounts are left: %s", got)
	}
}

// Reset must not delete files of another file system through its mount.
func TestRemoveStateStopsAtMounts(t *testing.T) {
	inMounts(t)
	root := t.TempDir()
	tmpfs(t, root+"/var/lib/kubelet/pods/1/volumes/data")
	testhost.Write(t, root+"/var/lib/kubelet/pods/1/volumes/data/precious", "x", 0o600)
	testhost.Write(t, root+"/var/lib/kubelet/config.yaml", "x", 0o600)
	// The same must hold if the directory is a link to another disk.
	if err := os.Rename(root+"/var/lib/kubelet", root+"/data"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../../data", root+"/var/lib/kubelet"); err != nil {
		t.Fatal(err)
	}
	testhost.Write(t, root+ledger.Path, `{"version": 1, "entries": [{"kind": "contents", "name": "/var/lib/kubelet"}]}`, 0o600)
	err := uninstall.RemoveState(context.Background(), testhost.Open(t, root))
	if err == nil || !strings.Contains(err.Error(), "is mounted there") {
		t.Errorf("err = %v", err)
	}
	if testhost.Read(t, root+"/var/lib/kubelet/pods/1/volumes/data/precious") != "x" {
		t.Error("the volume's data is gone")
	}
	if _, err := os.Stat(root + "/var/lib/kubelet/config.yaml"); !errors.Is(err, fs.ErrNotExist) {
		t.Error("what could be removed was not")
	}
}
