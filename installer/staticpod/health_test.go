package staticpod

import (
	"os"
	"testing"

	"airlift/installer/config"
	"airlift/installer/render"
)

// TestHealthCheck reads the health checks from rendered manifests.
func TestHealthCheck(t *testing.T) {
	for _, version := range []string{"v1.29.15", "v1.37.1"} {
		cfg := &config.Config{LocalAPIEndpoint: config.APIEndpoint{AdvertiseAddress: "10.1.2.3", BindPort: 6443}}
		cfg.KubernetesVersion = version
		cfg.NodeRegistration.Name = "one"
		cfg.Images = map[string]string{}
		for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "pause"} {
			cfg.Images[name] = "registry.k8s.io/" + name + ":" + version
		}
		cfg.Facts.NodeIP = "10.1.2.3"
		cfg.CompleteInit()
		pods, err := render.ControlPlane(cfg, os.DirFS(t.TempDir()))
		if err != nil {
			t.Fatal(err)
		}
		etcd, err := render.Etcd(cfg)
		if err != nil {
			t.Fatal(err)
		}
		pods["etcd"] = etcd
		for name, want := range map[string]map[string]string{
			"kube-apiserver":          {"v1.29.15": "https://10.1.2.3:6443/readyz", "v1.37.1": "https://10.1.2.3:6443/readyz"},
			"kube-controller-manager": {"v1.29.15": "https://127.0.0.1:10257/healthz", "v1.37.1": "https://127.0.0.1:10257/healthz"},
			"kube-scheduler":          {"v1.29.15": "https://127.0.0.1:10259/healthz", "v1.37.1": "https://127.0.0.1:10259/readyz"},
			"etcd":                    {"v1.29.15": "http://127.0.0.1:2381/health?serializable=false", "v1.37.1": "http://127.0.0.1:2381/readyz"},
		} {
			data, err := render.YAML(pods[name])
			if err != nil {
				t.Fatal(err)
			}
			if got, err := healthOf(data); err != nil || got != want[version] {
				t.Errorf("%s %s: %q, %v, want %q", version, name, got, err, want[version])
			}
		}
	}
	for manifest, want := range map[string]string{
		"{}":                         "",
		"{spec: {containers: [{}]}}": "",
		"{spec: {containers: [{livenessProbe: {httpGet: {port: none}}}]}}":                     "",
		"{spec: {containers: [{livenessProbe: {httpGet: {host: '::1', path: /a, port: 1}}}]}}": "http://[::1]:1/a",
	} {
		if got, err := healthOf([]byte(manifest)); err != nil || got != want {
			t.Errorf("%s: %q, %v", manifest, got, err)
		}
	}
	if got, err := healthOf([]byte("{")); err == nil {
		t.Errorf("no YAML: %q", got)
	}
}

func healthOf(manifest []byte) (string, error) {
	p, err := Parse("one", manifest)
	if err != nil {
		return "", err
	}
	return p.Health, nil
}
