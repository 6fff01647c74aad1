package staticpod

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestAll(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"kube-apiserver.yaml": `
spec:
  containers:
  - image: registry.k8s.io/kube-apiserver:v1.37.1
    command: [kube-apiserver, --secure-port=6443, --advertise-address=10.0.0.1]
    ports: [{name: probe-port, containerPort: 6443}]
    livenessProbe: {httpGet: {host: 10.0.0.1, path: /livez, port: probe-port, scheme: HTTPS}}
    readinessProbe: {httpGet: {host: 10.0.0.1, path: /readyz, port: probe-port, scheme: HTTPS}}
`,
		"etcd.yaml": `
spec:
  containers:
  - image: registry.k8s.io/etcd:3.5.16-0
    livenessProbe: {httpGet: {path: "/health?exclude=NOSPACE", port: 2381}}
  volumes: [{name: etcd-data, hostPath: {path: /data/etcd}}]
`,
		"scheduler.yaml": "spec: [",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pods, err := All(dir)
	if err != nil || len(pods) != 3 {
		t.Fatalf("%v, %v", pods, err)
	}
	etcd, api, broken := pods[0], pods[1], pods[2]
	if etcd.Health != "http://127.0.0.1:2381/health?exclude=NOSPACE" || etcd.Volumes["etcd-data"] != "/data/etcd" {
		t.Errorf("etcd: %+v", etcd)
	}
	if api.Health != "https://10.0.0.1:6443/readyz" || api.Flags["advertise-address"] != "10.0.0.1" || api.Image != "registry.k8s.io/kube-apiserver:v1.37.1" {
		t.Errorf("kube-apiserver: %+v", api)
	}
	if broken.Name != "scheduler" || broken.Err == nil {
		t.Errorf("a manifest that is not YAML: %+v", broken)
	}
}

func TestHostPath(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kube-apiserver.yaml")
	if err := os.WriteFile(file, []byte(`
spec:
  containers:
  - image: registry.k8s.io/kube-apiserver:v1.37.1
    startupProbe: {failureThreshold: 24, periodSeconds: 10, httpGet: {path: /livez, port: 6443}}
    volumeMounts: [{name: site, mountPath: /site}, {name: keys, mountPath: /site/keys/}, {name: memory, mountPath: /memory}]
  volumes:
  - {name: site, hostPath: {path: /etc/site}}
  - {name: keys, hostPath: {path: /srv/keys}}
  - {name: memory, emptyDir: {}}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := Read(file)
	if err != nil {
		t.Fatal(err)
	}
	if p.Startup != 4*time.Minute {
		t.Errorf("it may start for %s", p.Startup)
	}
	for inside, want := range map[string]string{
		"/site/policy.yaml": "/etc/site/policy.yaml", "/site": "/etc/site", "/site/keys/one": "/srv/keys/one", "/site/keysone": "/etc/site/keysone",
		"/memory/one": "", "/other": "", "/site/../other": "", "": "", "site/one": "",
	} {
		if got := p.HostPath(inside); got != want {
			t.Errorf("%q: %q, want %q", inside, got, want)
		}
	}
}
