package agent

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"airlift/installer/config"
	"airlift/installer/multihost/facts"
	"airlift/installer/node"
	"airlift/installer/registry"
	"airlift/installer/registry/hosts"
	"airlift/installer/render"
	"airlift/installer/revision"
	"airlift/scripts/fixtures/testcluster"
	"airlift/scripts/fixtures/testcluster/testclient"
	"airlift/scripts/fixtures/testhost"
)

// A plan relies on each fact, so each field has a place that sets it.
func TestEachFactIsRead(t *testing.T) {
	var source string
	for _, file := range testcluster.Must(filepath.Glob("*.go"))(t) {
		if !strings.HasSuffix(file, "_test.go") {
			source += string(testcluster.Must(os.ReadFile(file))(t))
		}
	}
	for _, of := range []any{facts.Facts{}, facts.Run{}, facts.Node{}, facts.Cluster{}, facts.ClusterNode{}, facts.EtcdMember{}} {
		for _, field := range reflect.VisibleFields(reflect.TypeOf(of)) {
			if !strings.Contains(source, field.Name+": ") && !strings.Contains(source, "."+field.Name+" ") && !strings.Contains(source, "."+field.Name+",") {
				t.Errorf("nothing sets %T.%s", of, field.Name)
			}
		}
	}
}

// TestWhatANodeLacks: a node that an upgrade made unschedulable, and one without the embedded registry.
func TestWhatANodeLacks(t *testing.T) {
	h, _ := testhost.ControlPlane(t, nil)
	expect := func(when string, cordoned, noRegistry bool) {
		t.Helper()
		f := &facts.Facts{Unknown: map[string]string{}}
		readNode(t.Context(), f, h, node.Observe(h), nil)
		if f.Node.Cordoned != cordoned || f.Node.NoRegistry != noRegistry || f.Unknown["node.cordoned"] != "" {
			t.Errorf("%s: %+v, unknown: %v", when, f.Node, f.Unknown)
		}
	}
	expect("after init", false, true)
	write(t, string(h.Root), hosts.Timer.UnitPath(), "[Timer]\n")
	expect("the node uses the registry and serves none", false, true)
	write(t, string(h.Root), registry.SettingsPath, "{}")
	expect("the node serves the registry", false, false)
	for _, cordoned := range []bool{true, false} {
		if err := (&revision.Record{Kind: revision.Upgrade, From: "v1.36.3", To: "v1.37.1", Cordoned: cordoned}).Write(h); err != nil {
			t.Fatal(err)
		}
		expect("an upgrade was interrupted", cordoned, false)
	}
}

// TestWhatWaits: a cluster says which nodes have not followed the last change of the endpoint, and whether add-ons wait.
func TestWhatWaits(t *testing.T) {
	const changed = 3
	for _, c := range []struct {
		name     string
		change   *config.EndpointChange
		followed string // the annotation of the node
		proxy    string // the image of kube-proxy
		want     facts.Cluster
		behind   bool
	}{
		{"no change", nil, "", "registry.k8s.io/kube-proxy:v1.37.1", facts.Cluster{}, false},
		{"by init", &config.EndpointChange{}, "", "mirror:5000/k8s/kube-proxy:v1.37.1@sha256:0", facts.Cluster{}, false},
		{"followed", &config.EndpointChange{Number: changed, InAddOns: true}, "3", "kube-proxy:v1.37.1", facts.Cluster{}, false},
		{"the add-ons do not use it", &config.EndpointChange{Number: changed}, "3", "kube-proxy:v1.37.1", facts.Cluster{EndpointWaits: true}, false},
		{"only served", &config.EndpointChange{Number: changed}, "3 serving", "kube-proxy:v1.37.1", facts.Cluster{EndpointWaits: true}, true},
		{"an earlier one only served", &config.EndpointChange{Number: changed}, "2 serving", "kube-proxy:v1.37.1", facts.Cluster{EndpointWaits: true}, true},
		{"an earlier one followed", &config.EndpointChange{Number: changed}, "2", "kube-proxy:v1.37.1", facts.Cluster{EndpointWaits: true}, true},
		{"never followed", &config.EndpointChange{Number: changed}, "", "kube-proxy:v1.37.1", facts.Cluster{EndpointWaits: true}, true},
		{"undone", &config.EndpointChange{Number: changed, InAddOns: true, Undone: true}, "2", "kube-proxy:v1.37.1", facts.Cluster{EndpointUndone: true}, true},
		{"an older kube-proxy", nil, "", "registry.k8s.io/kube-proxy:v1.36.9", facts.Cluster{AddonsWait: true}, false},
		{"an own kube-proxy", nil, "", "site/kube-proxy:2026-11", facts.Cluster{}, false},
		{"an own tag of the version", nil, "", "site/kube-proxy:v1.37.1-site.2", facts.Cluster{}, false},
		{"an own tag of an older version", nil, "", "site/kube-proxy:v1.37.0-site.2", facts.Cluster{AddonsWait: true}, false},
		{"kube-proxy is disabled", nil, "", "site/kube-proxy:v1.36.9", facts.Cluster{}, false},
		{"the version is none", nil, "", "site/kube-proxy:v1.36.9", facts.Cluster{Version: "stable-1.37"}, false},
		{"no kube-proxy", nil, "", "", facts.Cluster{}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := testhost.Config(func(cfg *config.Config) {
				cfg.KubernetesVersion, cfg.Endpoint = cmp.Or(c.want.Version, "v1.37.1"), config.Endpoint{VIPs: []string{"10.0.0.100"}, Change: c.change}
				cfg.Proxy.Disabled = c.name == "kube-proxy is disabled"
			})
			n := nodeObject("w1", "v1.37.1", "True")
			n.Annotations = map[string]string{"airlift.dev/endpoint-change": c.followed}
			objects := []runtime.Object{n, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kubelet-config"}, Data: map[string]string{"kubelet": "{}"}}}
			objects[1].(*corev1.ConfigMap).ResourceVersion = "77"
			for _, list := range [][]runtime.Object{testcluster.Must(render.UploadClusterConfig(cfg))(t), testcluster.Must(render.UploadEndpoint(cfg))(t)} {
				for _, o := range list {
					if m, is := o.(*corev1.ConfigMap); is {
						objects = append(objects, m)
					}
				}
			}
			if c.proxy != "" {
				objects = append(objects, &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-proxy"}, Spec: appsv1.DaemonSetSpec{
					Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Image: c.proxy}}}},
				}})
			}
			client, _ := testclient.Fake(objects...)
			f := &facts.Facts{Unknown: map[string]string{}}
			if err := readObjects(t.Context(), f, client); err != nil || f.Cluster == nil || len(f.Cluster.Nodes) != 1 || len(f.Unknown) > 0 || f.Cluster.Stored["kubelet-config"] != "77" {
				t.Fatalf("%+v, %v", f, err)
			}
			got := fmt.Sprint(f.Cluster.AddonsWait, f.Cluster.EndpointWaits, f.Cluster.EndpointUndone, f.Cluster.Nodes[0].EndpointBehind, f.Cluster.Nodes[0].EndpointServes)
			if want := fmt.Sprint(c.want.AddonsWait, c.want.EndpointWaits, c.want.EndpointUndone, c.behind, c.name == "only served"); got != want {
				t.Errorf("add-ons wait, the endpoint waits, is undone, the node is behind, only serves: %s, want %s", got, want)
			}
		})
	}
}
