package apply

import (
	"context"
	"slices"
	"strings"
	"testing"

	"airlift/scripts/fixtures/testcluster/testclient"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"airlift/installer/cluster"
	"airlift/internal/fault"
)

func TestBadManifests(t *testing.T) {
	for text, want := range map[string]string{
		"a: [":                                "document 1",
		"---\n---\napiVersion: v1\nkind: Pod": "document 1: a Pod has no metadata.name",
		"kind: Pod\nmetadata: {name: a}":      "document 1: Pod a has no apiVersion",
		"apiVersion: v1\nmetadata: {name: a}": "document 1",
		"apiVersion: v1\nkind: Pod\nkind: Pod\nmetadata: {name: a}":                                           "line 3: Pod.kind is written twice",
		"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n...\napiVersion: v1\nkind: Pod\nmetadata: {name: b}": "line 5: a second document",
		"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n---\n[1, 2]":                                         "document 2",
		"apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: Pod, metadata: {name: \"\"}}]":            "item 1: a Pod has no metadata.name",
	} {
		_, err := Parse(Manifest{Name: "bad"}, []byte(text))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `manifest "bad"`) || fault.Hint(err) == "" {
			t.Errorf("%q: %v (%s), want %q", text, err, fault.Hint(err), want)
		}
	}
	for _, empty := range []string{"", "---\n", "# only a comment\n---\n\n"} {
		if m, err := Parse(Manifest{Name: "empty"}, []byte(empty)); err != nil || m.Objects() != 0 {
			t.Errorf("%q: %d objects, %v", empty, m.Objects(), err)
		}
	}
}

func TestPodsThatNeedAWorker(t *testing.T) {
	node := func(name string, taints ...corev1.Taint) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{Taints: taints}}
	}
	tainted := node("cp", corev1.Taint{Key: cluster.ControlPlaneLabel, Effect: corev1.TaintEffectNoSchedule})
	pending := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "x"},
		Status: corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/1 nodes are available"}}},
	}
	tolerant := pending.DeepCopy()
	tolerant.Spec.Tolerations = []corev1.Toleration{{Key: cluster.ControlPlaneLabel, Operator: corev1.TolerationOpExists}}
	notReady := node("cp", tainted.Spec.Taints[0], corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule})
	starting := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: "x"}, Status: corev1.PodStatus{Phase: corev1.PodPending}}
	for name, c := range map[string]struct {
		client *cluster.Client
		want   bool
	}{
		"a tainted control plane":     {first(testclient.Fake(tainted, pending)), true},
		"no pod waits for a node":     {first(testclient.Fake(tainted, starting)), false},
		"a pod that waits for Ready":  {first(testclient.Fake(notReady, tolerant)), false},
		"a worker":                    {first(testclient.Fake(tainted, node("w"), pending)), false},
		"a worker that is not ready":  {first(testclient.Fake(tainted, node("w", corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}), pending)), false},
		"a worker for special pods":   {first(testclient.Fake(tainted, node("w", corev1.Taint{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}), pending)), true},
		"a worker that is only worse": {first(testclient.Fake(tainted, node("w", corev1.Taint{Key: "gpu", Effect: corev1.TaintEffectPreferNoSchedule}), pending)), false},
	} {
		if why := anyNeedsWorker(context.Background(), c.client.API); (why != "") != c.want {
			t.Errorf("%s: %q", name, why)
		}
	}
}

func first[A, B any](a A, _ B) A { return a }

// TestDataIsNamed: what has data is only removed if it is named.
func TestDataIsNamed(t *testing.T) {
	for _, kind := range [][2]string{
		{"v1", "PersistentVolume"}, {"v1", "PersistentVolumeClaim"}, {"snapshot.storage.k8s.io/v1", "VolumeSnapshot"}, {"snapshot.storage.k8s.io/v1", "VolumeSnapshotContent"},
		{"groupsnapshot.storage.k8s.io/v1beta1", "VolumeGroupSnapshot"}, {"groupsnapshot.storage.k8s.io/v1beta1", "VolumeGroupSnapshotContent"},
	} {
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": kind[0], "kind": kind[1], "metadata": map[string]any{"name": "a"}}}
		why, named, err := (&Applier{}).reason(t.Context(), o, inventoryName(o, ""), nil)
		if err != nil || !named || why == "" || !slices.Contains(whenNamed, o.GroupVersionKind().GroupKind().String()) {
			t.Errorf("%s: %q, %t, %v", kind, why, named, err)
		}
	}
}
