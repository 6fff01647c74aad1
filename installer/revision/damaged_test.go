package revision

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"airlift/bundle"
	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/payload"
	"airlift/installer/phases"
	"airlift/installer/render"
	"airlift/installer/workflow"
)

// TestDamagedNodeFiles: an upgrade refuses a damaged file of the node that it would read on, and names
// it.
func TestDamagedNodeFiles(t *testing.T) {
	files := map[string]string{
		config.KubeletConfigFile:         "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncgroupDriver: systemd\n",
		render.KubeletInstanceConfigPath: "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncontainerRuntimeEndpoint: unix:///run/containerd/containerd.sock\n",
		config.KubeletFlagsFile:          "KUBELET_KUBEADM_ARGS=\"--node-ip=192.0.2.1\"\n",
		node.APIServerManifest:           "spec: {containers: [{command: [kube-apiserver, --advertise-address=192.0.2.1]}]}\n",
	}
	damages := map[string]func(good string) string{
		"empty": func(string) string { return "" }, "zeros": func(good string) string { return strings.Repeat("\x00", len(good)) },
		"zeros at the end": func(good string) string { return good[:len(good)/2] + strings.Repeat("\x00", len(good)/2) },
	}
	for damaged := range files {
		for _, name := range []string{"", "empty", "zeros", "zeros at the end"} {
			h, unlock, err := host.OpenLocked(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			defer unlock()
			for path, text := range files {
				if path == damaged && name != "" {
					text = damages[name](text)
				}
				if err := errors.Join(os.MkdirAll(filepath.Dir(h.Path(path)), 0o755), os.WriteFile(h.Path(path), []byte(text), 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			b := &payload.Bundle{File: new(bundle.File), Manifest: &bundle.Manifest{KubernetesVersion: "v1.37.2"}}
			u := New(&phases.Plan{Config: &config.Config{}, Bundle: b}, Options{Kind: Upgrade}, node.NewMachine(h, &workflow.Console{Out: io.Discard}))
			u.Change, u.Config = newVersion{}, &config.Config{Cluster: config.Cluster{KubernetesVersion: "v1.37.2"}}
			u.Stored = &cluster.Stored{FetchedConfig: &cluster.FetchedConfig{Kubelet: []byte("kind: KubeletConfiguration\n")}}
			_, driver := u.cgroupDriver()
			_, kubelet := u.KubeletFiles()
			_, server := apiServerFlags(h)
			err = errors.Join(driver, kubelet, server)
			if name == "" {
				if err != nil {
					t.Error(err)
				}
				continue
			}
			if err == nil || !strings.Contains(err.Error(), damaged) {
				t.Errorf("%s, %s: %v", damaged, name, err)
				continue
			}
			t.Log(err)
		}
	}
}
