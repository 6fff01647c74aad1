package node

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"airlift/scripts/fixtures/testhost"
)

// TestObserve: what the files of a host show.
func TestObserve(t *testing.T) {
	api := func(args string) string {
		return "spec: {containers: [{name: kube-apiserver, command: [kube-apiserver" + args + "]}]}"
	}
	const manifests = "etc/kubernetes/manifests/"
	for name, c := range map[string]struct {
		files        map[string]string
		role, dir    string
		externalEtcd bool
	}{
		"nothing":       {nil, NoNode, "/etc/kubernetes/pki", false},
		"a worker":      {map[string]string{"etc/kubernetes/kubelet.conf": ""}, Worker, "/etc/kubernetes/pki", false},
		"stacked etcd":  {map[string]string{manifests + "kube-apiserver.yaml": api(""), manifests + "etcd.yaml": api("")}, ControlPlane, "/etc/kubernetes/pki", false},
		"external etcd": {map[string]string{manifests + "kube-apiserver.yaml": api(", --etcd-servers=https://10.0.0.9:2379")}, ControlPlane, "/etc/kubernetes/pki", true},
		"only etcd":     {map[string]string{manifests + "etcd.yaml": api("")}, ControlPlane, "/etc/kubernetes/pki", false},
		"own directory": {map[string]string{manifests + "kube-apiserver.yaml": api(", --client-ca-file=/srv/pki/ca.crt, --tls-cert-file=/srv/pki/apiserver.crt"), manifests + "etcd.yaml": api("")},
			ControlPlane, "/srv/pki", false},
		"damaged": {map[string]string{manifests + "kube-apiserver.yaml": "a: ["}, ControlPlane, "/etc/kubernetes/pki", false},
	} {
		root := t.TempDir()
		for file, text := range c.files {
			if err := errors.Join(os.MkdirAll(filepath.Join(root, filepath.Dir(file)), 0o755), os.WriteFile(filepath.Join(root, file), []byte(text), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		o := Observe(testhost.Open(t, root))
		if cfg := o.PKI(); o.Role != c.role || o.IsNode != (c.role != NoNode) || cfg.CertificatesDir != c.dir || (cfg.Etcd.External != nil) != c.externalEtcd {
			t.Errorf("%s: %+v, %+v", name, o, cfg)
		}
		if id, err := o.Identity(); id.Role != c.role || err == nil || !strings.Contains(err.Error(), c.dir) {
			t.Errorf("%s: %+v, %v", name, id, err)
		}
	}
}
