package cluster

import (
	"maps"
	"testing"
)

// The kubelet lists pods of the API server too, and static pods of the site.
func TestStaticPodUIDs(t *testing.T) {
	got, err := staticPodUIDs([]byte(`{"items": [
		{"metadata": {"name": "etcd-n-1", "namespace": "kube-system", "uid": "a1", "annotations": {"kubernetes.io/config.source": "file"}}},
		{"metadata": {"name": "kube-scheduler-n-1", "namespace": "kube-system", "uid": "b2", "annotations": {"kubernetes.io/config.source": "api"}}},
		{"metadata": {"name": "kube-apiserver-n-1", "namespace": "site", "uid": "c3", "annotations": {"kubernetes.io/config.source": "file"}}},
		{"metadata": {"name": "coredns", "namespace": "kube-system", "uid": "d4"}}
	]}`), "n-1")
	if err != nil || !maps.Equal(got, map[string]string{"etcd": "a1"}) {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := staticPodUIDs([]byte("no JSON"), "n-1"); err == nil {
		t.Error("no error")
	}
}
