package agent

import (
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"airlift/installer/cluster/workloads"
	"airlift/installer/multihost/facts"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/testcluster"
	"airlift/scripts/fixtures/testcluster/testclient"
)

func aGate(host string) *facts.Gate {
	return &facts.Gate{Stage: "upgrade canary", To: "v1.37.1", Hosts: []string{host}, Groups: []string{"canary"}, Soak: "10m0s", Checks: []string{"canary"},
		By: "ann@laptop", Since: time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)}
}

// A driver replaces only the gate that it knows, may repeat each step, and the pods that were broken before stay in it.
func TestGateIsComparedAndReplaced(t *testing.T) {
	client, writes := testclient.Fake(sitePod("agent-1", "DaemonSet", "agent", "w1", false))
	ctx := t.Context()
	apply := func(was, is *facts.Gate, wrote ...string) *facts.Gate {
		t.Helper()
		stored, err := GateChange{was, is}.Apply(ctx, client)
		if w := writes(); err != nil || !slices.Equal(w, wrote) || !stored.Is(is) {
			t.Errorf("%v; it wrote %q, want %q; stored %+v", err, w, wrote, stored)
		}
		read, _, err := readGate(ctx, client)
		if err != nil || !reflect.DeepEqual(read, stored) {
			t.Errorf("%v: %+v, want %+v", err, read, stored)
		}
		return stored
	}
	apply(nil, nil)
	first := apply(nil, aGate("w1"), "create configmaps")
	if want := map[string]int{"kube-system/DaemonSet/agent on w1": 1}; !reflect.DeepEqual(first.Broken, want) {
		t.Errorf("broken before: %v, want %v", first.Broken, want)
	}
	apply(nil, aGate("w1")) // the answer was lost
	for _, was := range []*facts.Gate{nil, aGate("w3")} {
		if _, err := (GateChange{was, aGate("w2")}).Apply(ctx, client); err == nil || !strings.Contains(err.Error(), "another driver changed hosts meanwhile") || fault.Hint(err) == "" {
			t.Errorf("after %v: %v", was, err)
		}
		if _, err := (GateChange{aGate("w3"), nil}).Apply(ctx, client); err == nil {
			t.Error("a driver opened the gate of another one")
		}
	}
	if w := writes(); len(w) > 0 {
		t.Errorf("it wrote %q", w)
	}
	next := aGate("w2")
	next.Broken = first.Broken
	apply(first, next, "update configmaps")
	apply(next, nil, "delete configmaps")
	apply(next, nil)
}

// A gate that is damaged, or of another format, is no missing gate.
func TestUnknownGate(t *testing.T) {
	text := testcluster.Must(aGate("w1").Encode())(t)
	var fields map[string]any
	if err := json.Unmarshal([]byte(text), &fields); err != nil || fields["format"] != 1.0 {
		t.Fatal(err, text)
	}
	for damage, want := range map[string]string{
		strings.Replace(text, `"format": 1`, `"format": 2`, 1):         "it has the format 2, and this file reads the format 1",
		strings.Replace(text, `"format": 1,`, ``, 1):                   "it has the format 0",
		strings.Replace(text, `"stage"`, `"until": "now", "stage"`, 1): "unknown field",
		strings.Replace(text, `"w1"`, ``, 1):                           "it has no hosts",
		"":                                                             "it is damaged",
		"null":                                                         "it has the format 0",
		strings.Replace(text, `"since": "2026-`, `"since": "yesterday-`, 1): "it is damaged",
	} {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: gateMap}, Data: map[string]string{gateKey: damage}}
		client, writes := testclient.Fake(m)
		if _, _, err := readGate(t.Context(), client); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "ConfigMap kube-system/airlift-roll") {
			t.Errorf("%q: %v, want %q", damage, err, want)
		}
		for _, is := range []*facts.Gate{nil, aGate("w1")} {
			if _, err := (GateChange{nil, is}).Apply(t.Context(), client); err == nil || len(writes()) > 0 {
				t.Errorf("%q was overwritten: %v", damage, err)
			}
		}
	}
}

// sitePod is a pod in kube-system.
func sitePod(name, kind, owner, node string, ready bool) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "kube-system"}, Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: corev1.PodPending}}
	if kind != "" {
		yes := true
		p.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: owner, Controller: &yes}}
	}
	if ready {
		p.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	}
	return p
}

func component(p *corev1.Pod, label, value string) *corev1.Pod {
	p.Labels = map[string]string{label: value}
	return p
}

// A pod of the site that was broken before the roll does not fail its batch. One that was healthy before does, and so does each pod of
// Kubernetes and of the CNI.
func TestPodsThatWereBrokenBefore(t *testing.T) {
	for _, c := range []struct {
		name          string
		before, after []*corev1.Pod
		want          string // "": healthy
	}{
		{"a DaemonSet", []*corev1.Pod{sitePod("a-1", "DaemonSet", "a", "w1", false)}, []*corev1.Pod{sitePod("a-2", "DaemonSet", "a", "w1", false)}, ""},
		{"a DaemonSet on another node", []*corev1.Pod{sitePod("a-9", "DaemonSet", "a", "w9", false), sitePod("a-1", "DaemonSet", "a", "w1", true)},
			[]*corev1.Pod{sitePod("a-9", "DaemonSet", "a", "w9", false), sitePod("a-1", "DaemonSet", "a", "w1", false)}, "w1: pod kube-system/a-1"},
		{"a Deployment whose pod comes from another node", []*corev1.Pod{sitePod("d-1", "ReplicaSet", "d", "w9", false)}, []*corev1.Pod{sitePod("d-2", "ReplicaSet", "d", "w1", false)}, ""},
		{"a Deployment with one pod more", []*corev1.Pod{sitePod("d-1", "ReplicaSet", "d", "w9", false), sitePod("d-2", "ReplicaSet", "d", "w1", true)},
			[]*corev1.Pod{sitePod("d-1", "ReplicaSet", "d", "w9", false), sitePod("d-3", "ReplicaSet", "d", "w1", false)}, "w1: pod kube-system/d-3"},
		{"a new ReplicaSet", []*corev1.Pod{sitePod("d-1", "ReplicaSet", "d-old", "w1", false)}, []*corev1.Pod{sitePod("d-2", "ReplicaSet", "d-new", "w1", false)}, "w1: pod kube-system/d-2"},
		{"a pod without an owner", []*corev1.Pod{sitePod("p", "", "", "w1", false)}, []*corev1.Pod{sitePod("p", "", "", "w1", false)}, ""},
		{"a static pod of the site", []*corev1.Pod{sitePod("s-w1", "Node", "w1", "w1", false)}, []*corev1.Pod{sitePod("s-w1", "Node", "w1", "w1", false)}, ""},
		{"healthy before", []*corev1.Pod{sitePod("a-1", "DaemonSet", "a", "w1", true)}, []*corev1.Pod{sitePod("a-1", "DaemonSet", "a", "w1", false)}, "w1: pod kube-system/a-1"},
		{"kube-proxy", []*corev1.Pod{component(sitePod("kp", "DaemonSet", "kube-proxy", "w1", false), "k8s-app", "kube-proxy")},
			[]*corev1.Pod{component(sitePod("kp", "DaemonSet", "kube-proxy", "w1", false), "k8s-app", "kube-proxy")}, "w1: pod kube-system/kp"},
		{"a static pod of Kubernetes", []*corev1.Pod{component(sitePod("etcd-w1", "Node", "w1", "w1", false), "tier", "control-plane")},
			[]*corev1.Pod{component(sitePod("etcd-w1", "Node", "w1", "w1", false), "tier", "control-plane")}, "w1: pod kube-system/etcd-w1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				of := func(pods []*corev1.Pod) (objects []runtime.Object) {
					objects = []runtime.Object{nodeObject("w1", "v1.37.1", "True"), nodeObject("w9", "v1.37.1", "True")}
					for _, p := range pods {
						objects = append(objects, p.DeepCopy())
					}
					return objects
				}
				before, _ := testclient.Fake(of(c.before)...)
				broken := testcluster.Must(workloads.Broken(context.Background(), before.API))(t)
				after, _ := testclient.Fake(of(c.after)...)
				w := Wait{Healthy: workloads.Healthy{Nodes: []string{"w1"}, Pods: true, Broken: broken}, Timeout: time.Minute}
				var nodes []string
				w.Report = func(missing []workloads.Lack) { nodes = NodesOf(missing) }
				err := w.Until(t.Context(), after.API)
				if (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
					t.Errorf("%v, want %q; broken before: %v", err, c.want, broken)
				}
				if want := map[bool][]string{true: {"w1"}, false: {}}[c.want != ""]; !slices.Equal(nodes, want) {
					t.Errorf("not healthy: %q, want %q", nodes, want)
				}
			})
		})
	}
}
