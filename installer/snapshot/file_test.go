package snapshot

import (
	"bytes"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	kubeproxyv1 "k8s.io/kube-proxy/config/v1alpha1"
	"sigs.k8s.io/yaml"

	"airlift/bundle"
	"airlift/installer/backup"
	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/payload"
	"airlift/installer/render"
	"airlift/installer/workflow"
	"airlift/scripts/fixtures/testhost"
)

// backedUp returns the configuration in a backup of a control plane.
func backedUp(t *testing.T, change func(*config.Config)) []byte {
	t.Helper()
	h, cfg := testhost.ControlPlane(t, change)
	cfg.Images["kube-proxy"] = "p:1"
	text, err := render.ClusterConfiguration(cfg)
	if err != nil {
		t.Fatal(err)
	}
	fetched := &cluster.FetchedConfig{}
	if fetched.Cluster, _, err = config.DecodeClusterConfiguration(text); err != nil {
		t.Fatal(err)
	}
	if fetched.Kubelet, err = render.KubeletConfig(cfg); err != nil {
		t.Fatal(err)
	}
	objects, err := render.KubeProxy(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		if m, ok := o.(*corev1.ConfigMap); ok {
			fetched.KubeProxy = &kubeproxyv1.KubeProxyConfiguration{}
			if err := yaml.Unmarshal([]byte(m.Data["config.conf"]), fetched.KubeProxy); err != nil {
				t.Fatal(err)
			}
		}
	}
	b := New(h, &workflow.Console{Out: new(bytes.Buffer)})
	document, err := b.configuration(fetched, "one", nil)
	if err != nil {
		t.Fatal(err)
	}
	return document
}

// TestConfigurationOfBackup restores the configuration of a cluster on another host.
func TestConfigurationOfBackup(t *testing.T) {
	for _, version := range []string{"v1.29.15", "v1.37.1"} {
		document := backedUp(t, func(c *config.Config) {
			c.KubernetesVersion = version
			c.ControlPlaneEndpoint, c.ClusterName = "k8s.site.example:6443", "site"
			_ = c.Networking.ServiceSubnet.Set("10.20.0.0/16")
			c.APIServer.CertSANs = []string{"extra.example"}
		})
		f := &File{Path: "backup.tar", Backup: &backup.Backup{
			Manifest: backup.Manifest{CNI: "flannel", KubernetesVersion: version, EmbeddedRegistry: true,
				Endpoint: &config.Endpoint{VIPs: []string{"10.9.9.100"}, Balancer: true}}, Files: map[string][]byte{backup.ConfigName: document},
		}}
		c, warnings, err := f.Config()
		if err != nil || len(warnings) > 0 {
			t.Fatalf("%v %v\n%s", err, warnings, document)
		}
		c.Facts = config.Facts{Hostname: "two", NodeIP: "10.9.9.9", CgroupDriver: "cgroupfs"}
		c.KubernetesVersion = version
		c.CompleteInit()
		if err := c.ValidateInit(); err != nil {
			t.Fatalf("%v\n%s", err, document)
		}
		if c.NodeRegistration.Name != "two" || c.LocalAPIEndpoint.AdvertiseAddress != "10.9.9.9" || c.ControlPlaneEndpoint != "k8s.site.example:6443" || c.ClusterName != "site" ||
			c.Networking.ServiceSubnet.String() != "10.20.0.0/16" || !slices.Contains(c.APIServer.CertSANs, "extra.example") || c.CNI != "flannel" {
			t.Errorf("%+v", c)
		}
		if !c.Registry.Used || !c.Endpoint.Balancer || len(c.Endpoint.VIPs) != 1 {
			t.Errorf("without the balancer, the virtual address or the registry of the cluster: %+v, %+v", c.Endpoint, c.Registry)
		}
		if c.Kubelet == nil || c.Kubelet.CgroupDriver != "" || c.Kubelet.StaticPodPath != "" || c.KubeProxy == nil {
			t.Errorf("the backup has values of the old host, or none of the cluster: %+v %+v", c.Kubelet, c.KubeProxy)
		}
		for bundled, fits := range map[string]bool{version: true, version[:len("v1.37")] + ".99": true, "v1.33.1": false} {
			b := &payload.Bundle{Manifest: &bundle.Manifest{KubernetesVersion: bundled}}
			if err := f.CheckVersion(b); (err == nil) != fits {
				t.Errorf("backup of %s, bundle of %s: %v", version, bundled, err)
			}
		}
	}
}
