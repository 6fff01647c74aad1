// Package testhost makes directories that tests use as hosts.
package testhost

import (
	"os"
	"path"
	"testing"

	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/render"
)

// Open opens a directory as the host.
func Open(t *testing.T, root string) *host.Host {
	t.Helper()
	h, err := host.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// ControlPlane returns a new directory with the static pods of a control plane, and its complete
// configuration. change, if not nil, changes that before it is completed. members are those of etcd,
// none for a new cluster.
func ControlPlane(t *testing.T, change func(*config.Config), members ...render.EtcdMember) (*host.Host, *config.Config) {
	t.Helper()
	cfg := Config(change)
	h, err := host.OpenDirectory(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	pods, err := render.ControlPlane(cfg, os.DirFS(h.Path("/")))
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Etcd.External == nil {
		if pods["etcd"], err = render.Etcd(cfg, members...); err != nil {
			t.Fatal(err)
		}
	}
	for name, pod := range pods {
		data, err := render.YAML(pod)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.WriteFile(path.Join(config.ManifestsDir, name+".yaml"), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return h, cfg
}

// Config returns the complete configuration of a control plane with Kubernetes v1.29.15. change, if not
// nil, changes it before it is completed.
func Config(change func(*config.Config)) *config.Config {
	cfg := &config.Config{
		Facts:  config.Facts{Hostname: "one", NodeIP: "10.1.2.3", CgroupDriver: "systemd"},
		Images: map[string]string{"etcd": "etcd:3.5.16-0", "kube-apiserver": "a:1", "kube-controller-manager": "c:1", "kube-scheduler": "s:1"},
	}
	cfg.KubernetesVersion = "v1.29.15"
	if change != nil {
		change(cfg)
	}
	cfg.CompleteInit()
	return cfg
}
