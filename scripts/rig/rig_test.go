package rig

import "testing"

func TestListed(t *testing.T) {
	for _, c := range []struct {
		list, version, name string
		want                bool
	}{
		{"", "v1.37.1", "etcd", true},
		{"v1.37.1:kubeadm,etcd", "v1.37.1", "etcd", true},
		{"v1.37.1:kubeadm,etcd", "v1.37.1", "etc", false},
		{"v1.37.1:kubeadm,etcd", "v1.37.1", "kubelet", false},
		{"v1.37.1:kubeadm,containerd", "v1.37.1", "ctr", true},
		{"v1.37.1:kubeadm", "v1.29.15", "kubelet", true},
		{"v1.37.1:kubeadm", "v1.37.10", "kubelet", true},
	} {
		if got := listed(c.list, c.version, c.name); got != c.want {
			t.Errorf("listed(%q, %q, %q) = %v", c.list, c.version, c.name, got)
		}
	}
}
