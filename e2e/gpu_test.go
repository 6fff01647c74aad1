//go:build e2e

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"airlift/scripts/fixtures/docs"
	"airlift/scripts/lab"
	"airlift/scripts/lab/site"
)

// The stand-ins for what a vendor has. stubRuntime does what a vendor's runtime does: it changes the configuration of a container, and
// runs runc. stubCDI describes a device that no container has otherwise, as a GPU.
const (
	stubRuntime = `#!/bin/sh
previous=
for argument; do
	if [ "$previous" = --bundle ]; then sed -i 's/"env":\[/&"STUB_RUNTIME=ran",/' "$argument/config.json"; fi
	previous=$argument
done
exec runc "$@"
`
	stubCDI = `cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
- name: "0"
  containerEdits:
    env: [STUB_CDI=gpu0]
    deviceNodes: [{path: /dev/nvidia0, hostPath: /dev/kmsg}]
`
	// stubManifest is what docs/gpu.md changes: the vendor's DaemonSet.
	stubManifest = `apiVersion: apps/v1
kind: DaemonSet
metadata: {name: nvidia-device-plugin-daemonset, namespace: kube-system}
spec:
  selector: {matchLabels: {name: nvidia-device-plugin-ds}}
  template:
    metadata: {labels: {name: nvidia-device-plugin-ds}}
    spec:
      priorityClassName: system-node-critical
      tolerations: [{operator: Exists}]
      containers:
      - name: plugin
        image: ` + pluginImage + `
        command: [/deviceplugin, nvidia.com/gpu, nvidia.com/gpu=0]
        volumeMounts: [{name: plugins, mountPath: /var/lib/kubelet/device-plugins}]
      volumes: [{name: plugins, hostPath: {path: /var/lib/kubelet/device-plugins}}]
`
	pluginImage = "registry.example/gpu/device-plugin:1"
	draImage    = "registry.example/gpu/dra-example-driver"
	draModule   = "sigs.k8s.io/dra-example-driver@v0.4.0"
	runtimeFile = "/etc/containerd/conf.d/50-nvidia.toml"
)

// pod is a pod of the user's image that stays. Its spec has fields more, and so has its container.
func pod(name, image, spec, container string) string {
	return fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {terminationGracePeriodSeconds: 1, tolerations: [{operator: Exists}], %s containers: [{name: c, image: %q, imagePullPolicy: Never, args: [pause], %s}]}}
---
`, name, spec, image, container)
}

// recipes returns the files of docs/gpu.md by their names.
func recipes(t *testing.T) map[string]string {
	t.Helper()
	pages, err := docs.Read("..")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, p := range pages {
		for _, b := range p.Blocks {
			if p.Path == "docs/gpu.md" && b.File != "" {
				files[b.File] = b.Text
			}
		}
	}
	return files
}

// program builds a program of Go without libraries, and returns an image that has it at /NAME and in its PATH.
func program(t *testing.T, base v1.Image, dir, name, from string) v1.Image {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags", "-s -w", "-o", file, from)
	build.Dir, build.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", from, err, out)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	image, err := mutate.AppendLayers(base, fileLayer(t, name, string(data)), fileLayer(t, "usr/local/bin/"+name, string(data)))
	if err != nil {
		t.Fatal(err)
	}
	return image
}

// carryGPU builds a bundle by the recipe, with stand-ins for the vendor's images, and replaces the bundle of a host by it. With dra, it has
// the example driver, by its own chart.
func carryGPU(t *testing.T, h *lab.Host, agnhost v1.Image, files map[string]string, dra bool) {
	t.Helper()
	dir := t.TempDir()
	names := map[string]string{"plugin": pluginImage}
	images := map[string]v1.Image{"plugin": program(t, agnhost, "..", "deviceplugin", "./scripts/fixtures/deviceplugin")}
	charts := ""
	if dra {
		out, err := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", draModule).Output()
		module := struct{ Dir string }{}
		if err := errors.Join(err, json.Unmarshal(out, &module)); err != nil {
			t.Fatal(err)
		}
		names["dra"] = draImage + ":1"
		images["dra"] = program(t, agnhost, module.Dir, "dra-example-kubeletplugin", "./cmd/dra-example-kubeletplugin")
		charts = fmt.Sprintf("- {name: dra, namespace: dra, chart: {source: %s/deployments/helm/dra-example-driver, set: [image.repository=%s, image.tag=1, 'kubeletPlugin.tolerations[0].operator=Exists']}}\n", module.Dir, draImage)
	}
	list := []string{}
	for name, image := range images {
		if _, err := layout.Write(filepath.Join(dir, name), mutate.AppendManifests(empty.Index, on(image, ""))); err != nil {
			t.Fatal(err)
		}
		list = append(list, fmt.Sprintf("%q", "oci:"+name+"="+names[name]))
	}
	files["gpu/nvidia-device-plugin.yml"] = stubManifest
	files["gpu.yaml"] += charts + "images: [" + strings.Join(list, ", ") + "]\n"
	for name, text := range files {
		if filepath.IsAbs(name) {
			continue // for the host
		}
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "gpu")
	out := buildBundle(t, path, "--", "--file", filepath.Join(dir, "gpu.yaml"))
	contains(t, out, "is in the bundle")
	if _, err := h.CopyIn(t.Context(), path, site.Installer, 0o755); err != nil {
		t.Fatal(err)
	}
}

// TestGPU follows docs/gpu.md on a host without a GPU, with stand-ins for what a vendor has. Containers get what the runtime, CDI and DRA
// give, and keep it when systemd reads its units again and containerd restarts.
func TestGPU(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-gpu", Hosts: 1})
	h := s.Hosts[0]
	var minor int
	if _, err := fmt.Sscanf(version, "v1.%d", &minor); err != nil {
		t.Fatal(err)
	}
	dra := minor >= 34 // resource.k8s.io/v1
	image, err := site.WorkloadImage(version)
	if err != nil {
		t.Fatal(err)
	}
	files := recipes(t)
	carryGPU(t, h, imageInBundle(t, image), files, dra)
	variables := func(t *testing.T, pod string) string {
		t.Helper()
		return kubectl(t, s, "exec", pod, "--", "cat", "/proc/1/environ") // a process of exec does not see what the runtime changed
	}
	// A process in the running container opens the device; the kernel would refuse it without the rule of the container's cgroup.
	usesDevice := func(t *testing.T) {
		t.Helper()
		kubectl(t, s, "exec", "gpu", "--", "sh", "-c", "echo e2e-gpu >/dev/nvidia0")
	}
	create := func(t *testing.T, text string, pods ...string) {
		t.Helper()
		put(t, h, "/root/gpu-pods.yaml", text)
		kubectl(t, s, "apply", "--filename", "/root/gpu-pods.yaml")
		kubectl(t, s, append([]string{"wait", "--for=condition=Ready", "--timeout=120s"}, pods...)...)
	}
	status := func(t *testing.T) string { // also while a component starts
		out, _ := h.Output(t.Context(), site.Installer, "status")
		return out
	}
	const noClass = "no node has the handler of the runtime class nvidia (handler nvidia)"
	inOrder(t, s, []stage{
		{"init with the file of the recipe", func(t *testing.T) {
			systemd := strings.TrimSpace(run(t, h, "sh", "-c", "test -e /sys/fs/cgroup/cgroup.controllers && echo true || echo false"))
			put(t, h, "/usr/bin/nvidia-container-runtime", stubRuntime)
			run(t, h, "chmod", "755", "/usr/bin/nvidia-container-runtime")
			put(t, h, "/etc/cdi/nvidia.yaml", stubCDI)
			put(t, h, runtimeFile, strings.Replace(files[runtimeFile], "SystemdCgroup = true", "SystemdCgroup = "+systemd, 1))
			install(t, h, 0, "init")
			systemIsUp(t, s, 1)
			contains(t, run(t, h, "containerd", "config", "dump"), "runtimes.nvidia")
			contains(t, run(t, h, "sh", "-c", "containerd config dump | grep -A1 cdi_spec_dirs"), "/etc/cdi")
			if out := status(t); strings.Contains(out, noClass) || strings.Contains(out, runtimeFile) {
				t.Error(out)
			}
		}},
		{"the device plugin runs on a node with the label", func(t *testing.T) {
			kubectl(t, s, "label", "node", h.Name, "gpu=nvidia")
			eventually(t, time.Minute, func() string {
				if out := kubectl(t, s, "get", "node", h.Name, "-o", `jsonpath={.status.allocatable.nvidia\.com/gpu}`); out != "1" {
					return fmt.Sprintf("the node has %q GPUs", out)
				}
				return ""
			})
		}},
		{"pods get what they ask for", func(t *testing.T) {
			create(t, pod("plain", image, "", "")+pod("class", image, "runtimeClassName: nvidia,", "")+
				pod("gpu", image, "runtimeClassName: nvidia,", "resources: {limits: {nvidia.com/gpu: 1}}"), "pod/plain", "pod/class", "pod/gpu")
			contains(t, variables(t, "gpu"), "STUB_RUNTIME", "STUB_CDI", "gpu0")
			usesDevice(t)
			if out := variables(t, "class"); !strings.Contains(out, "STUB_RUNTIME") || strings.Contains(out, "STUB_CDI") {
				t.Errorf("the pod with the runtime class only:\n%s", out)
			}
			if out := variables(t, "plain"); strings.Contains(out, "STUB_") {
				t.Errorf("the pod without both:\n%s", out)
			}
		}},
		{"and keep it", func(t *testing.T) {
			run(t, h, "systemctl", "daemon-reload")
			usesDevice(t)
			run(t, h, "systemctl", "restart", "containerd")
			install(t, h, 0, "init")
			usesDevice(t)
			contains(t, kubectl(t, s, "get", "pod", "gpu", "-o", "jsonpath={.status.containerStatuses[0].restartCount}"), "0")
		}},
		{"by DRA, without a runtime class", func(t *testing.T) {
			if !dra {
				t.Logf("%s HAS NO resource.k8s.io/v1: NOT RUN", version)
				return
			}
			eventually(t, 2*time.Minute, func() string {
				if out := kubectl(t, s, "get", "resourceslices", "-o", "jsonpath={.items[*].spec.driver}"); !strings.Contains(out, "gpu.example.com") {
					return "no ResourceSlice of the driver: " + out
				}
				return ""
			})
			create(t, files["gpu-claim.yaml"]+"---\n"+pod("claim", image, "resourceClaims: [{name: gpu, resourceClaimTemplateName: one-gpu}],", "resources: {claims: [{name: gpu}]}"), "pod/claim")
			if out := variables(t, "claim"); !strings.Contains(out, "GPU_DEVICE_") || strings.Contains(out, "STUB_RUNTIME") {
				t.Errorf("the pod with a claim:\n%s", out)
			}
		}},
		{"status names a runtime class that no node has", func(t *testing.T) {
			run(t, h, "mv", runtimeFile, "/root/")
			run(t, h, "systemctl", "restart", "containerd")
			if minor >= 31 { // the kubelet reports handlers
				eventually(t, time.Minute, func() string {
					if out := status(t); !strings.Contains(out, noClass) {
						return out
					}
					return ""
				})
			}
			run(t, h, "mv", "/root/"+filepath.Base(runtimeFile), runtimeFile)
			run(t, h, "systemctl", "restart", "containerd")
			eventually(t, time.Minute, func() string {
				if out := status(t); strings.Contains(out, noClass) {
					return out
				}
				return ""
			})
		}},
		{"reset leaves the files of others", func(t *testing.T) {
			install(t, h, 0, "reset", "--force")
			contains(t, run(t, h, "cat", runtimeFile, "/etc/cdi/nvidia.yaml"), "nvidia-container-runtime", "nvidia.com/gpu")
		}},
	})
}
