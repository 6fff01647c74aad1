package revision

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/render"
	"airlift/scripts/fixtures/testcluster/testclient"
	"airlift/scripts/fixtures/testhost"
)

// objectsOf are the objects of a cluster that have its endpoint.
func objectsOf(t *testing.T, endpoint, proxy, flannelHost string, change *config.EndpointChange) []runtime.Object {
	t.Helper()
	cfg := testhost.Config(func(c *config.Config) {
		c.ControlPlaneEndpoint = endpoint
		c.Endpoint.Change = change
	})
	var objects []runtime.Object
	for _, build := range []func(*config.Config) ([]runtime.Object, error){render.UploadClusterConfig, render.UploadKubeletConfig, render.UploadEndpoint} {
		made, err := build(cfg)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range made {
			if m, ok := o.(*corev1.ConfigMap); ok && (change != nil || m.Name != config.EndpointConfigMap) {
				objects = append(objects, m)
			}
		}
	}
	env := []corev1.EnvVar{{Name: "POD_NAME", Value: "p"}, {Name: "KUBERNETES_SERVICE_HOST", Value: flannelHost}, {Name: "KUBERNETES_SERVICE_PORT", Value: "6443"}}
	return append(objects,
		&corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-proxy"},
			Data: map[string]string{"config.conf": "mode: iptables\n", "kubeconfig.conf": "clusters: [{cluster: {server: " + proxy + "}}]\n"}},
		&appsv1.DaemonSet{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSet"}, ObjectMeta: metav1.ObjectMeta{Namespace: "kube-flannel", Name: "kube-flannel-ds"},
			Spec: appsv1.DaemonSetSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "kube-flannel", Env: env}}}}}})
}

// TestUndoKeepsAChangedEndpoint: each object is restored with the endpoint that the cluster has now, also where the change has not
// come to the add-ons yet. After an interruption, the rest follows.
func TestUndoKeepsAChangedEndpoint(t *testing.T) {
	const vip, own = "https://10.1.2.100:6443", "https://10.1.2.3:6443"
	change := &config.EndpointChange{Number: 1, Server: vip}
	former, _ := testclient.Fake(objectsOf(t, "", own, "10.1.2.3", nil)...)
	var saved []json.RawMessage
	for _, name := range Objects {
		data, err := former.ReadObject(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if data != nil {
			saved = append(saved, data)
		}
	}
	for name, c := range map[string]struct{ proxy, flannel string }{
		"complete":               {vip, "10.1.2.100"},
		"before the add-ons use": {own, "10.1.2.3"},
	} {
		client, writes := testclient.Fake(objectsOf(t, "10.1.2.100:6443", c.proxy, c.flannel, change)...)
		for _, objects := range [][]json.RawMessage{saved[:1], saved, saved} { // the first run was interrupted
			kept, err := readEndpoint(t.Context(), client, false)
			if err != nil {
				t.Fatal(err)
			}
			writes()
			for _, data := range objects {
				if data, err = kept.in(data); err == nil {
					_, err = client.ReplaceObject(t.Context(), data)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		if w := writes(); len(w) > 0 {
			t.Errorf("%s: the last run wrote %q", name, w)
		}
		kept, err := readEndpoint(t.Context(), client, false)
		if err != nil || kept.stored.Cluster.ControlPlaneEndpoint != "10.1.2.100:6443" || kept.stored.ProxyServer != c.proxy || kept.stored.FlannelServer != "https://"+c.flannel+":6443" {
			t.Errorf("%s: %+v, %v", name, kept, err)
		}
	}
	if data, err := (*keptEndpoint)(nil).in(saved[0]); err != nil || strings.Contains(string(data), "10.1.2.100") {
		t.Errorf("%s, %v", data, err)
	}
}

// TestUndoOfNames: undo of a reconfiguration restores the names in certificates that it changed. Those of the endpoint stay as a later
// change of the endpoint left them.
func TestUndoOfNames(t *testing.T) {
	const vip = "10.1.2.100"
	for name, c := range map[string]struct {
		former, now  []string
		vips, before []string // addresses of the endpoint
		want         []string
	}{
		"the endpoint came later":          {[]string{"old.example"}, []string{"new.example", vip}, []string{vip}, nil, []string{"old.example", vip}},
		"the endpoint came before":         {[]string{vip}, []string{vip, "new.example"}, []string{vip}, nil, []string{vip}},
		"the endpoint was undone since":    {[]string{vip, "old.example"}, []string{"new.example"}, nil, []string{vip}, []string{"old.example"}},
		"a user's name that is an address": {[]string{vip}, []string{vip}, nil, []string{vip}, []string{vip}},
	} {
		stored := testhost.Config(nil).Cluster
		stored.ControlPlaneEndpoint, stored.APIServer.CertSANs = "now.example:6443", c.now
		stored.Endpoint = config.Endpoint{VIPs: c.vips, Change: &config.EndpointChange{Number: 2, Before: config.FormerEndpoint{VIPs: c.before}}}
		former := testhost.Config(nil)
		former.ControlPlaneEndpoint, former.APIServer.CertSANs = "former.example:6443", c.former
		objects, err := render.UploadClusterConfig(former)
		if err != nil {
			t.Fatal(err)
		}
		var data json.RawMessage
		for _, o := range objects {
			if m, ok := o.(*corev1.ConfigMap); ok {
				if data, err = json.Marshal(m); err != nil {
					t.Fatal(err)
				}
			}
		}
		for reconfigured, want := range map[bool][]string{true: c.want, false: c.now} {
			kept := &keptEndpoint{&cluster.Stored{FetchedConfig: &cluster.FetchedConfig{Cluster: stored}}, reconfigured}
			restored, err := kept.in(data)
			if err != nil {
				t.Fatal(err)
			}
			var m corev1.ConfigMap
			if err := json.Unmarshal(restored, &m); err != nil {
				t.Fatal(err)
			}
			got, _, err := config.DecodeClusterConfiguration([]byte(m.Data["ClusterConfiguration"]))
			if err != nil || got.ControlPlaneEndpoint != "now.example:6443" || !slices.Equal(got.APIServer.CertSANs, want) {
				t.Errorf("%s, reconfigured %t: %s with %q, %v, not %q", name, reconfigured, got.ControlPlaneEndpoint, got.APIServer.CertSANs, err, want)
			}
		}
	}
}
