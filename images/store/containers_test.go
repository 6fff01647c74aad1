package store_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"airlift/images/store"
	"airlift/installer/redact"
)

// A container that ends: its exit code, its times and the last lines of its log.
func TestContainerThatExits(t *testing.T) {
	p := busyImages(t)
	onEach(t, func(t *testing.T, rel release) {
		d := newDaemon(t, rel, "overlayfs")
		d.write("config.toml", strings.ReplaceAll(d.config(), "SystemdCgroup = true", "SystemdCgroup = false"))
		d.start()
		s := d.connect()
		importAll(t, s, &p)
		began := time.Now().Add(-time.Second)
		running := runPod(t, d, "runs", cri.NamespaceMode_NODE)
		ended := runLogged(t, d, "ends", "/busy", "cat", "/none")
		unable := runLogged(t, d, "cannot-start", "/no-such-file")
		created := createLogged(t, d, "created", "/busy", "cat", "/none")
		if err := s.StopContainer(t.Context(), created, time.Second); err != nil {
			t.Errorf("a container that was not started is stopped: %v", err)
		}

		containers := map[string]store.Container{}
		for deadline := time.Now().Add(time.Minute); !containers[ended].Exited; time.Sleep(50 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("containers: %+v", containers)
			}
			list, err := s.Containers(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range list {
				containers[c.ID] = c
			}
		}
		if c := containers[created]; c.Exited || !c.Unstarted {
			t.Errorf("the one that was not started: %+v", c)
		}
		if c := containers[running]; c.Exited || c.Unstarted || c.Name != "app" {
			t.Errorf("the running one: %+v", c)
		}
		if c := containers[ended]; c.Namespace != "kube-system" || c.Pod != "ends" || c.PodUID != "uid-ends" || c.Name != "app" || c.Created.Before(began) {
			t.Errorf("the ended one: %+v", c)
		}
		// containerd takes the time of the start after the start: a process that ends at once
		// may have ended a moment before.
		exit, err := s.Exit(t.Context(), ended)
		if err != nil || exit.Code != 1 || exit.Reason != "Error" || exit.Started.Before(began) || exit.Finished.Before(began) {
			t.Errorf("%+v %v", exit, err)
		}
		if lines := redact.LogTail(exit.LogPath, 5); !slices.Equal(lines, []string{"open /none: no such file or directory"}) {
			t.Errorf("the log %s ends with %q", exit.LogPath, lines)
		}
		if exit, err := s.Exit(t.Context(), unable); err != nil || exit.Code != 128 || exit.Reason != "StartError" || !strings.Contains(exit.Message, "no-such-file") {
			t.Errorf("a container that cannot start: %+v %v", exit, err)
		}

		if err := s.RemovePod(t.Context(), "kube-system", "ends"); err != nil {
			t.Fatal(err)
		}
		if pods, err := s.Pods(t.Context()); err != nil || !slices.Equal(pods, []string{"default/runs", "kube-system/cannot-start", "kube-system/created"}) {
			t.Errorf("pods %q, %v", pods, err)
		}
		if err := s.RemovePods(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// runLogged runs a command in a pod with the labels and the log file that the kubelet gives it,
// and returns the container's ID. It does not matter whether the command can start.
func runLogged(t *testing.T, d *daemon, name string, command ...string) string {
	t.Helper()
	id := createLogged(t, d, name, command...)
	_, runtime := d.cri()
	_, _ = runtime.StartContainer(t.Context(), &cri.StartContainerRequest{ContainerId: id})
	return id
}

// createLogged is runLogged before the start.
func createLogged(t *testing.T, d *daemon, name string, command ...string) string {
	t.Helper()
	_, runtime := d.cri()
	t.Cleanup(removeCgroups)
	labels := map[string]string{"io.kubernetes.pod.name": name, "io.kubernetes.pod.namespace": "kube-system", "io.kubernetes.pod.uid": "uid-" + name}
	namespaces := &cri.NamespaceOption{Network: cri.NamespaceMode_NODE, Pid: cri.NamespaceMode_CONTAINER}
	sandbox := &cri.PodSandboxConfig{
		Metadata: &cri.PodSandboxMetadata{Name: name, Namespace: "kube-system", Uid: "uid-" + name}, Labels: labels, LogDirectory: t.TempDir(),
		Linux: &cri.LinuxPodSandboxConfig{CgroupParent: cgroupParent, SecurityContext: &cri.LinuxSandboxSecurityContext{NamespaceOptions: namespaces}},
	}
	pod, err := runtime.RunPodSandbox(t.Context(), &cri.RunPodSandboxRequest{Config: sandbox})
	if err != nil {
		t.Fatal(err)
	}
	container, err := runtime.CreateContainer(t.Context(), &cri.CreateContainerRequest{
		PodSandboxId: pod.PodSandboxId, SandboxConfig: sandbox,
		Config: &cri.ContainerConfig{
			Metadata: &cri.ContainerMetadata{Name: "app"}, Labels: labels, LogPath: "0.log",
			Image: &cri.ImageSpec{Image: appRef}, Command: command,
			Linux: &cri.LinuxContainerConfig{SecurityContext: &cri.LinuxContainerSecurityContext{NamespaceOptions: namespaces}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return container.ContainerId
}
