package node

import (
	"strings"
	"testing"

	"airlift/installer/host"
	"airlift/internal/fault"
)

func TestImageVersion(t *testing.T) {
	older := []string{"registry.k8s.io/etcd:3.5.9-0", "registry.k8s.io/etcd:3.5.16-0", "localhost:5000/etcd:3.5.16-1", "registry.k8s.io/etcd:3.6.0-0"}
	for i := 1; i < len(older); i++ {
		a, b := imageVersion(older[i-1]), imageVersion(older[i])
		if a == nil || b == nil || !a.LessThan(b) {
			t.Errorf("%s (%v) is not older than %s (%v)", older[i-1], a, older[i], b)
		}
	}
	for _, image := range []string{"etcd", "etcd:latest"} {
		if v := imageVersion(image); v != nil {
			t.Errorf("%s: %v", image, v)
		}
	}
}

func TestOlderEtcd(t *testing.T) {
	manifest := func(tag string) []byte {
		return []byte("spec: {containers: [{image: 'registry.k8s.io/etcd:" + tag + "'}]}\n")
	}
	for _, c := range []struct {
		is, want string
		refused  bool
	}{
		{"3.6.8-0", "3.7.1-0", false},
		{"3.7.1-0", "3.7.1-0", false},
		{"3.7.1-0", "3.6.8-0", true},
		{"3.7.1-0", "3.7.0-0", true},
		{"3.7.1-0@sha256:" + strings.Repeat("a", 64), "3.6.8-0", true},
		{"site", "3.6.8-0", false},
		{"3.7.1-0", "site", false},
	} {
		h, err := host.OpenDirectory(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		m := NewMachine(h, nil)
		if why, err := m.OlderEtcd(manifest(c.want)); err != nil || why != "" {
			t.Errorf("no etcd: %q, %v", why, err)
		}
		if _, err := h.WriteFile(EtcdManifest, manifest(c.is), 0o600); err != nil {
			t.Fatal(err)
		}
		why, err := m.OlderEtcd(manifest(c.want))
		if err != nil || (why != "") != c.refused {
			t.Errorf("%s over %s: %q, %v", c.want, c.is, why, err)
		}
		if c.refused && (!strings.Contains(why, c.is) || !strings.Contains(why, c.want)) {
			t.Errorf("%s over %s: %q", c.want, c.is, why)
		}
	}
}

func TestCheckEtcd(t *testing.T) {
	for _, c := range []struct {
		image, data string
		refused     bool
	}{
		{"registry.k8s.io/etcd:3.6.8-0", "3.6.0", false},
		{"registry.k8s.io/etcd:3.6.8-0", "3.6.11", false}, // each reads the other's data
		{"registry.k8s.io/etcd:3.7.0-0", "3.6.11", false},
		{"registry.k8s.io/etcd:3.6.8-0", "3.7.1", true},
		{"registry.k8s.io/etcd:3.6.8-0", "4.0.0", true},
		{"registry.k8s.io/etcd:site", "3.7.1", false},
		{"registry.k8s.io/etcd:3.6.8-0", "", false},
	} {
		err := CheckEtcd(c.image, c.data, "v1.36.3")
		if (err != nil) != c.refused {
			t.Errorf("%s with data of %q: %v", c.image, c.data, err)
		}
		if c.refused && (fault.ExitCode(err) != fault.Preflight || !strings.Contains(fault.Hint(err), "bundle build --version v1.36.3 --etcd-version "+c.data+"-0")) {
			t.Errorf("%v, hint %q", err, fault.Hint(err))
		}
	}
}
