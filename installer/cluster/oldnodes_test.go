package cluster

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestRemoveOtherControlPlanes(t *testing.T) {
	node := func(name string, labels map[string]string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	}
	plane := map[string]string{ControlPlaneLabel: ""}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "etcd-old"}, Spec: corev1.PodSpec{NodeName: "old"}}
	c, writes := fakeClient(node("new", plane), node("old", plane), node("worker", nil), pod)
	removed, workers, err := c.NodeObjects().RemoveOtherControlPlanes(t.Context(), "new")
	if err != nil || !slices.Equal(removed, []string{"old"}) || !slices.Equal(workers, []string{"worker"}) {
		t.Errorf("removed %v, workers %v, %v", removed, workers, err)
	}
	if got := writes(); !slices.Equal(got, []string{"delete nodes", "delete pods"}) {
		t.Errorf("%v", got)
	}
	if removed, _, err := c.NodeObjects().RemoveOtherControlPlanes(t.Context(), "new"); err != nil || removed != nil || len(writes()) > 0 {
		t.Errorf("a second time: %v %v", removed, err)
	}
}
