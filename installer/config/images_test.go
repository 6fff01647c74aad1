package config

import (
	"strings"
	"testing"
)

func TestImageNames(t *testing.T) {
	brought := map[string]string{
		"kube-apiserver": "registry.k8s.io/kube-apiserver:v1.29.15",
		"coredns":        "registry.k8s.io/coredns/coredns:v1.11.1",
		"etcd":           "registry.k8s.io/etcd:3.5.16-0",
		"flannel":        "ghcr.io/flannel-io/flannel:v0.28.4",
	}
	c := &Config{Cluster: Cluster{ImageRepository: "registry.example.com:5000/k8s"}}
	c.DNS.ImageRepository = "registry.example.com/dns"
	c.Etcd.Local.ImageTag = "3.5.16-0"
	got, err := c.ImageNames(brought)
	if err != nil {
		t.Fatal(err)
	}
	for component, want := range map[string]string{
		"kube-apiserver": "registry.example.com:5000/k8s/kube-apiserver:v1.29.15",
		"coredns":        "registry.example.com/dns/coredns:v1.11.1",
		"etcd":           "registry.example.com:5000/k8s/etcd:3.5.16-0",
		"flannel":        "ghcr.io/flannel-io/flannel:v0.28.4",
	} {
		if got[component] != want {
			t.Errorf("%s is called %s, want %s", component, got[component], want)
		}
	}
	c.DNS.ImageTag, c.Etcd.Local.ImageTag = "v1.11.9", "3.6.0"
	if _, err := c.ImageNames(brought); err == nil || !strings.Contains(err.Error(), "v1.11.9") || !strings.Contains(err.Error(), "3.6.0") {
		t.Errorf("tags that the bundle does not have: %v", err)
	}
}
