package cluster

import (
	"encoding/json"
	"maps"
	"os/exec"
	"reflect"
	"strings"
	"testing"

	"airlift/scripts/fixtures/testcluster"

	"airlift/internal/fault"
	"airlift/scripts/fixtures/rig"
)

// What a real API server has written to etcd gives the same configuration as the API.
func TestRealSnapshot(t *testing.T) {
	p := testcluster.Start(t)
	etcdctl := rig.Component(t, testcluster.Version, "etcdctl")
	c := initialized(t, p)
	s := Snapshot{Prefix: "/registry", Values: map[string][]byte{}}
	for _, key := range append(s.Keys(), s.UIDKey()) {
		out, err := exec.Command(etcdctl, "--endpoints", p.EtcdURL, "get", key, "--write-out", "json").Output()
		if err != nil {
			t.Fatal(err)
		}
		var answer struct{ Kvs []struct{ Value []byte } }
		if err := json.Unmarshal(out, &answer); err != nil {
			t.Fatal(err)
		}
		if len(answer.Kvs) == 1 {
			s.Values[key] = answer.Kvs[0].Value
		}
	}
	want := testcluster.Must(c.FetchConfig(testcluster.Within(t)))(t)
	got := testcluster.Must(s.Config())(t)
	if len(want.Versions) == 0 || len(got.Versions) > 0 { // etcd keeps the versions of objects next to them
		t.Errorf("versions from etcd %v, from the API %v", got.Versions, want.Versions)
	}
	want.Versions = got.Versions
	if !reflect.DeepEqual(got, want) || got.Cluster.KubernetesVersion != testcluster.Version {
		t.Errorf("from etcd %+v\nfrom the API %+v", got, want)
	}
	if flannel := testcluster.Must(c.NodeObjects().HasFlannel(testcluster.Within(t)))(t); s.HasFlannel() != flannel {
		t.Errorf("flannel: from etcd %v, from the API %v", s.HasFlannel(), flannel)
	}

	if uid := testcluster.Must(c.ClusterUID(testcluster.Within(t)))(t); uid == "" || s.UID() != uid {
		t.Errorf("UID: from etcd %q, from the API %q", s.UID(), uid)
	}

	bad := func(change func(values map[string][]byte)) Snapshot {
		values := maps.Clone(s.Values)
		change(values)
		return Snapshot{s.Prefix, values}
	}
	key := s.configMap(kubeadmConfigMap)
	for want, s := range map[string]Snapshot{
		"no ConfigMap kube-system/kubeadm-config":  bad(func(v map[string][]byte) { delete(v, key) }),
		"the API server encrypts ConfigMaps":       bad(func(v map[string][]byte) { v[key] = []byte("k8s:enc:secretbox:v1:key:x") }),
		"reading ConfigMap kube-system/kubeadm-co": bad(func(v map[string][]byte) { v[key] = []byte("k8s\x00x") }),
	} {
		if _, err := s.Config(); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(fault.Hint(err), "init") {
			t.Errorf("%s: %v", want, err)
		}
	}
}
