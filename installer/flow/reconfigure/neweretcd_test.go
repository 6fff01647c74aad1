package reconfigure

import (
	"strings"
	"testing"

	"airlift/installer/cluster/inventory"
	"airlift/installer/node"
	"airlift/installer/upgradecheck"
)

// TestNewerEtcd: an upgrade to a file with an older etcd keeps the newer one, and so does each reconfiguration after it. A file with a
// newer etcd is still an upgrade.
func TestNewerEtcd(t *testing.T) {
	const running = "registry.k8s.io/etcd:3.5.16-0"
	for image, want := range map[string]struct {
		rendered string
		refused  bool
	}{"registry.k8s.io/etcd:3.5.12-0": {running, false}, running: {running, false}, "registry.k8s.io/etcd:3.6.8-0": {"registry.k8s.io/etcd:3.6.8-0", true}} {
		r, h := reconfiguring(t, Options{})
		c := r.Config
		c.LocalAPIEndpoint.AdvertiseAddress, c.LocalAPIEndpoint.BindPort = "10.1.2.3", 6443
		c.KubernetesVersion, c.NodeRegistration.Name, c.Facts.NodeIP = "v1.30.4", "one", "10.1.2.3"
		c.Images = map[string]string{}
		for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "pause"} {
			c.Images[name] = "registry.k8s.io/" + name + ":v1.30.4"
		}
		c.Images[node.EtcdPod] = image
		c.CompleteInit()
		r.parts = []string{node.EtcdPod}
		if _, err := h.WriteFile(node.EtcdManifest, []byte("spec: {containers: [{image: '"+running+"'}]}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		problems, err := r.checkImages(t.Context(), &upgradecheck.Target{Cluster: &inventory.Cluster{Components: []inventory.Component{{Name: node.EtcdPod, Image: running}}}})
		if err != nil || len(problems) > 0 != want.refused {
			t.Errorf("%s: %+v, %v", image, problems, err)
		}
		manifests, err := r.Rendered(c, func(string, []string) {})
		if err != nil || !strings.Contains(string(manifests[node.EtcdPod]), "image: "+want.rendered+"\n") {
			t.Errorf("%s: %v\n%s", image, err, manifests[node.EtcdPod])
		}
		if c.Images[node.EtcdPod] != image {
			t.Errorf("the configuration has %s now", c.Images[node.EtcdPod])
		}
	}
}
