package cluster_test

import (
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
)

const oldServer, newServer = "https://10.0.0.1:6443", "https://10.0.0.100:6443"

// addOns are kube-proxy and flannel, as init creates them.
func addOns(t *testing.T) (objects []runtime.Object) {
	t.Helper()
	c := &config.Config{Images: map[string]string{"kube-proxy": "kube-proxy", "flannel": "flannel"}}
	c.KubernetesVersion = "v1.37.1"
	c.Facts.NodeIP, c.Facts.ConntrackWritable = "10.0.0.1", true
	c.CompleteInit()
	for _, build := range []func(*config.Config) ([]runtime.Object, error){render.KubeProxy, render.Flannel} {
		made, err := build(c)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range made {
			switch o.(type) {
			case *corev1.ConfigMap, *appsv1.DaemonSet:
				objects = append(objects, o)
			}
		}
	}
	return objects
}

// TestPointAddOns: only the server changes, a second run writes nothing, the defaults stay recognizable as defaults, and the
// way back gives what was there.
func TestPointAddOns(t *testing.T) {
	client, writes := testclient.Fake(addOns(t)...)
	read := func() (m *corev1.ConfigMap, d *appsv1.DaemonSet) {
		t.Helper()
		m, err := client.API.CoreV1().ConfigMaps("kube-system").Get(t.Context(), "kube-proxy", metav1.GetOptions{})
		if err == nil {
			d, err = client.API.AppsV1().DaemonSets("kube-flannel").Get(t.Context(), "kube-flannel-ds", metav1.GetOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
		return m, d
	}
	point := func(from []string, to, host string, want bool) string {
		t.Helper()
		server, changed, err := client.PointProxies(t.Context(), from, to)
		if err != nil || changed != want {
			t.Errorf("kube-proxy: changed %t, %v", changed, err)
		}
		if host != "" {
			if _, changed, err := client.PointFlannel(t.Context(), from, "https://"+host+":6443"); err != nil || changed != want {
				t.Errorf("flannel: changed %t, %v", changed, err)
			}
		}
		return server
	}
	before, flannel := read()
	point([]string{oldServer}, newServer, "10.0.0.100", true)
	after, _ := read()
	if got := strings.ReplaceAll(after.Data["kubeconfig.conf"], newServer, oldServer); got != before.Data["kubeconfig.conf"] || strings.Count(after.Data["kubeconfig.conf"], newServer) != 1 {
		t.Errorf("%s", after.Data["kubeconfig.conf"])
	}
	if before.Annotations["kubeadm.kubernetes.io/component-config.hash"] == after.Annotations["kubeadm.kubernetes.io/component-config.hash"] {
		t.Error("the checksum of the defaults is the old one: an upgrade would take them for the user's")
	}
	writes()
	point([]string{oldServer}, newServer, "10.0.0.100", false)
	if w := writes(); len(w) > 0 {
		t.Errorf("a second run wrote %q", w)
	}
	if server := point([]string{"https://10.9.9.9:6443"}, "https://10.0.0.200:6443", "", false); server != newServer {
		t.Errorf("a server of the user's: %s", server)
	}
	if server, changed, err := client.PointFlannel(t.Context(), []string{"https://10.9.9.9:6443"}, "https://10.0.0.200:6443"); server != newServer || changed || err != nil {
		t.Errorf("flannel, a server of the user's: %s, %t, %v", server, changed, err)
	}
	point([]string{newServer}, oldServer, "10.0.0.1", true)
	last, lastFlannel := read()
	if last.Data["kubeconfig.conf"] != before.Data["kubeconfig.conf"] || last.Annotations["kubeadm.kubernetes.io/component-config.hash"] != before.Annotations["kubeadm.kubernetes.io/component-config.hash"] {
		t.Errorf("%v", last)
	}
	if a, b := flannel.Spec.Template.Spec.Containers[0].Env, lastFlannel.Spec.Template.Spec.Containers[0].Env; len(a) != len(b) {
		t.Errorf("%v, %v", a, b)
	}
}

// TestPublishServer: cluster-info stays as it is, but for the server.
func TestPublishServer(t *testing.T) {
	objects := render.ClusterInfo(&config.Config{LocalAPIEndpoint: config.APIEndpoint{AdvertiseAddress: "10.0.0.1", BindPort: 6443}}, []byte("CA"))
	client, _ := testclient.Fake(objects[0])
	read := func() string {
		m, err := client.API.CoreV1().ConfigMaps("kube-public").Get(t.Context(), "cluster-info", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return m.Data["kubeconfig"]
	}
	before := read()
	for _, c := range []struct {
		server  string
		changed bool
	}{{newServer, true}, {newServer, false}, {oldServer, true}} {
		if changed, err := client.PublishServer(t.Context(), c.server); err != nil || changed != c.changed {
			t.Errorf("%s: %t, %v", c.server, changed, err)
		}
		if got, err := client.ClusterInfoServer(t.Context()); err != nil || got != c.server {
			t.Errorf("%s, %v", got, err)
		}
	}
	if read() != before {
		t.Errorf("%s\nwas\n%s", read(), before)
	}
}

// TestPointWithoutAddOns: a cluster may have neither.
func TestPointWithoutAddOns(t *testing.T) {
	client, _ := testclient.Fake()
	if server, changed, err := client.PointProxies(t.Context(), []string{oldServer}, newServer); server != "" || changed || err != nil {
		t.Error(server, changed, err)
	}
	if _, changed, err := client.PointFlannel(t.Context(), []string{oldServer}, newServer); changed || err != nil {
		t.Error(changed, err)
	}
	if changed, err := client.PublishServer(t.Context(), newServer); changed || err != nil {
		t.Error(changed, err)
	}
}

// TestEndpointChangeOfANode: a node says which change it follows, or that it only serves it.
func TestEndpointChangeOfANode(t *testing.T) {
	client, writes := testclient.Fake(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "host1", Annotations: map[string]string{"airlift.dev/endpoint-change": "much"}}})
	state := func() (int, bool) {
		nodes, err := client.Nodes(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return nodes[0].Follows.Endpoint, nodes[0].Follows.OnlyServes
	}
	if n, _ := state(); n != 0 {
		t.Errorf("a damaged annotation is change %d", n)
	}
	for _, serves := range []bool{true, false, false} {
		if _, err := client.NodeObjects().Follow(t.Context(), "host1", func(f *cluster.Follows) { f.Endpoint, f.OnlyServes = 3, serves }); err != nil {
			t.Fatal(err)
		}
		if n, only := state(); n != 3 || only != serves {
			t.Errorf("%d, %t", n, only)
		}
	}
	if w := writes(); len(w) != 2 {
		t.Errorf("%q", w)
	}
}
