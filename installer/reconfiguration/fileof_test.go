package reconfiguration

import (
	"testing"

	"airlift/installer/config"
)

// TestFileOf: the last flag and the deepest mount win, as in the component.
func TestFileOf(t *testing.T) {
	const flag = "encryption-provider-config"
	mount := func(host, in string) config.HostPathMount {
		return config.HostPathMount{HostPath: host, MountPath: in}
	}
	for _, c := range []struct {
		args    []config.Arg
		volumes []config.HostPathMount
		want    string
	}{
		{nil, nil, ""},
		{[]config.Arg{{Name: flag, Value: "/keys/a.yaml"}}, []config.HostPathMount{mount("/srv/keys", "/keys")}, "/srv/keys/a.yaml"},
		{[]config.Arg{{Name: flag, Value: "/keys/old.yaml"}, {Name: flag, Value: "/keys/new.yaml"}}, []config.HostPathMount{mount("/srv/keys", "/keys")}, "/srv/keys/new.yaml"},
		{[]config.Arg{{Name: "encryption_provider_config", Value: "/keys/a.yaml"}}, []config.HostPathMount{mount("/srv/keys", "/keys")}, "/srv/keys/a.yaml"},
		{[]config.Arg{{Name: flag, Value: "/keys/in/a.yaml"}}, []config.HostPathMount{mount("/outer", "/keys"), mount("/inner", "/keys/in")}, "/inner/a.yaml"},
		{[]config.Arg{{Name: flag, Value: "/keys/in/a.yaml"}}, []config.HostPathMount{mount("/inner", "/keys/in"), mount("/outer", "/keys")}, "/inner/a.yaml"},
		{[]config.Arg{{Name: flag, Value: "/etc/ssl/certs/a.yaml"}}, nil, "/etc/ssl/certs/a.yaml"},
		{[]config.Arg{{Name: flag, Value: "/etc/kubernetes/pki/a.yaml"}}, nil, "/etc/kubernetes/pki/a.yaml"},
	} {
		cluster := config.Cluster{APIServer: config.APIServer{Component: config.Component{ExtraArgs: c.args, ExtraVolumes: c.volumes}}}
		if got := FileOf(&cluster, "kube-apiserver", flag); got != c.want {
			t.Errorf("%v, %v: %q, want %q", c.args, c.volumes, got, c.want)
		}
	}
}

// TestUnderscores: a flag that a running cluster cannot change has no other spelling.
func TestUnderscores(t *testing.T) {
	stored, node := before(t)
	for name := range map[string]bool{"service_cluster_ip_range": true, "service-cluster-ip-range": true, "etcd_servers": true, "etcd-prefix": true} {
		text := "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\napiServer: {extraArgs: [{name: " + name + ", value: x}]}\n"
		if _, refused := Merge(stored, given(t, text), node); len(refused) != 1 {
			t.Errorf("%s: refused %+v", name, refused)
		}
	}
}
