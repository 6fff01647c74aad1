package store_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"airlift/images/store"
)

const (
	appRef = "registry.example.com/app:1"

	// cgroupParent is the cgroup of the tests' pods.
	cgroupParent = "/airlift-store-test"

	// cniPlugin replaces every CNI plugin: it creates no network, and answers as in the CNI
	// specification.
	cniPlugin = `#!/bin/sh
case $CNI_COMMAND in
ADD) echo "{\"cniVersion\":\"0.4.0\",\"interfaces\":[{\"name\":\"$CNI_IFNAME\",\"sandbox\":\"$CNI_NETNS\"}],\"ips\":[{\"version\":\"4\",\"address\":\"192.0.2.7/24\",\"interface\":0}]}" ;;
VERSION) echo '{"cniVersion":"0.4.0","supportedVersions":["0.3.1","0.4.0"]}' ;;
esac
`
)

// busyImages are a pause image, with the name in containerd's configuration, and an
// application, with the same binary.
func busyImages(t *testing.T) imageSet {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "busy")
	t.Setenv("CGO_ENABLED", "0")
	run(t, ".", "go", "build", "-o", binary, "./testdata/busy")
	program := text("busy", string(must(os.ReadFile(binary))))
	program.Mode = 0o755
	base := layer(t, program, text("etc/base", "from the base"))
	var p imageSet
	pause, app := image(t, "/busy", base), image(t, "/app", base, layer(t, text("etc/.wh.base", ""), text("etc/app", "from the app")))
	p.add(t, pauseInConfig, pause, index(t, pause))
	p.add(t, appRef, app, index(t, app))
	return p
}

// runPod runs a pod with one container of the application and returns the
// container's ID.
func runPod(t *testing.T, d *daemon, name string, network cri.NamespaceMode, mounts ...*cri.Mount) string {
	t.Helper()
	ctx := t.Context()
	_, runtime := d.cri()
	t.Cleanup(removeCgroups)
	sandbox := &cri.PodSandboxConfig{
		Metadata: &cri.PodSandboxMetadata{Name: name, Namespace: "default", Uid: name},
		Linux: &cri.LinuxPodSandboxConfig{
			CgroupParent:    cgroupParent,
			SecurityContext: &cri.LinuxSandboxSecurityContext{NamespaceOptions: &cri.NamespaceOption{Network: network, Pid: cri.NamespaceMode_CONTAINER}},
		},
	}
	if network == cri.NamespaceMode_POD {
		sandbox.Hostname = name // on the host's network it has the host's name
	}
	pod, err := runtime.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: sandbox})
	if err != nil {
		t.Fatal(err)
	}
	container, err := runtime.CreateContainer(ctx, &cri.CreateContainerRequest{
		PodSandboxId: pod.PodSandboxId, SandboxConfig: sandbox,
		Config: &cri.ContainerConfig{
			Metadata: &cri.ContainerMetadata{Name: "app"},
			Image:    &cri.ImageSpec{Image: appRef},
			Command:  []string{"/busy"},
			Mounts:   mounts,
			Linux: &cri.LinuxContainerConfig{SecurityContext: &cri.LinuxContainerSecurityContext{
				NamespaceOptions: &cri.NamespaceOption{Network: network, Pid: cri.NamespaceMode_CONTAINER}}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := runtime.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: container.ContainerId}); err != nil {
		t.Fatal(err)
	}
	return container.ContainerId
}

// removeCgroups removes the parent directories that runc leaves.
func removeCgroups() {
	for _, pattern := range []string{"/sys/fs/cgroup" + cgroupParent, "/sys/fs/cgroup/*" + cgroupParent} {
		dirs, _ := filepath.Glob(pattern)
		for _, dir := range dirs {
			os.Remove(dir)
		}
	}
}

func execIn(t *testing.T, d *daemon, container string, command ...string) (stdout, stderr string) {
	t.Helper()
	_, runtime := d.cri()
	out, err := runtime.ExecSync(t.Context(), &cri.ExecSyncRequest{ContainerId: container, Cmd: command, Timeout: 30})
	if err != nil {
		t.Fatal(err)
	}
	return string(out.Stdout), string(out.Stderr)
}

// assertNoPods uses containerd's API, because the CRI does not list pods that it has lost.
func assertNoPods(t *testing.T, d *daemon) {
	t.Helper()
	_, runtime := d.cri()
	pods, err := runtime.ListPodSandbox(t.Context(), &cri.ListPodSandboxRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if len(pods.Items) > 0 {
		t.Errorf("%d pods left", len(pods.Items))
	}
	for _, what := range []string{"tasks", "containers"} {
		if left := d.ctr("k8s.io", what, "ls", "--quiet"); left != "" {
			t.Errorf("%s left: %s", what, left)
		}
	}
}

func TestPodsRunOnImportedImages(t *testing.T) {
	p := busyImages(t)
	onEach(t, func(t *testing.T, rel release) {
		d := newDaemon(t, rel, "overlayfs")
		d.write("config.toml", strings.ReplaceAll(d.config(), "SystemdCgroup = true", "SystemdCgroup = false"))
		d.start()
		s := d.connect()
		importAll(t, s, &p)
		container := runPod(t, d, "one", cri.NamespaceMode_NODE)
		runPod(t, d, "two", cri.NamespaceMode_NODE)
		if out, _ := execIn(t, d, container, "/busy", "cat", "/etc/app"); out != "from the app" {
			t.Errorf("the container reads %q", out)
		}
		if _, stderr := execIn(t, d, container, "/busy", "cat", "/etc/base"); !strings.Contains(stderr, "no such file") {
			t.Errorf("a file that the top layer removed: %q", stderr)
		}
		for range 2 { // the second time there is nothing to do
			if err := s.RemovePods(t.Context()); err != nil {
				t.Fatal(err)
			}
			assertNoPods(t, d)
		}
		assertMissing(t, s, &p)
	})
}

// netns lists the named network namespaces of the machine.
func netns(t *testing.T) []string {
	t.Helper()
	names, err := filepath.Glob("/run/netns/cni-*")
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// Reset must remove pods whose CNI plugin is missing or broken.
func TestRemovePodsWithoutCNIPlugin(t *testing.T) {
	p := busyImages(t)
	onEach(t, func(t *testing.T, rel release) {
		d := newDaemon(t, rel, "overlayfs")
		d.write("config.toml", strings.ReplaceAll(d.config(), "SystemdCgroup = true", "SystemdCgroup = false"))
		for _, dir := range []string{"cni", "net.d"} {
			if err := os.Mkdir(d.path(dir), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		for _, plugin := range []string{"cni/test", "cni/loopback"} {
			if err := os.WriteFile(d.path(plugin), []byte(cniPlugin), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		d.write("net.d/10-test.conflist", `{"cniVersion":"0.4.0","name":"test","plugins":[{"type":"test"}]}`)
		d.start()
		s := d.connect()
		importAll(t, s, &p)
		before := netns(t)
		runPod(t, d, "networked", cri.NamespaceMode_POD)
		if info, err := s.Info(t.Context()); err != nil || info.Network != (store.Condition{Ready: true}) {
			t.Errorf("network condition = %+v, %v", info.Network, err)
		}
		if got, err := s.Pods(t.Context()); err != nil || !slices.Equal(got, []string{"default/networked"}) {
			t.Errorf("pods %q, %v", got, err)
		}
		d.ctr("k8s.io", "containers", "create", "--snapshotter", "overlayfs", appRef, "unmanaged")
		if err := os.RemoveAll(d.path("cni")); err != nil {
			t.Fatal(err)
		}
		if err := s.RemovePods(t.Context()); err != nil {
			t.Error(err)
		}
		if left := d.ctr("k8s.io", "tasks", "ls", "--quiet"); left != "" {
			t.Errorf("tasks left: %s", left)
		}
		if left := d.ctr("k8s.io", "containers", "ls", "--quiet"); left != "unmanaged\n" {
			t.Errorf("containers left: %s", left)
		}
		d.ctr("k8s.io", "containers", "rm", "unmanaged")
		for _, ns := range netns(t) {
			if !slices.Contains(before, ns) {
				t.Errorf("network namespace %s left", ns)
			}
		}
		// The CRI notices this after a restart.
		d.restart()
		d.connect()
		assertNoPods(t, d)
	})
}
