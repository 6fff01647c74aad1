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
	plane := map[string]string{controlPlaneLabel: ""}
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

func TestRestartDaemonPods(t *testing.T) {
	pod := func(name, owner string) *corev1.Pod {
		controller := true
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name, OwnerReferences: []metav1.OwnerReference{{Kind: owner, Name: "x", Controller: &controller}}},
			Spec:       corev1.PodSpec{NodeName: "new"},
		}
	}
	c, _ := fakeClient(pod("kube-proxy-1", "DaemonSet"), pod("etcd-new", "Node"), pod("coredns-1", "ReplicaSet"))
	restarted, err := c.NodeObjects().RestartDaemonPods(t.Context(), "new", "kube-system", "kube-flannel")
	if err != nil || !slices.Equal(restarted, []string{"kube-system/kube-proxy-1"}) {
		t.Errorf("%v %v", restarted, err)
	}
}

// TestPodsOfOneNode: pods of lost nodes do not count, but each DaemonSet needs a pod on this one.
func TestPodsOfOneNode(t *testing.T) {
	want := Pods{Namespaces: []string{"kube-system"}, Node: "new", Service: "kube-system/kube-dns"}
	lost := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "coredns"}, Spec: corev1.PodSpec{NodeName: "lost"}}
	c, _ := fakeClient(lost)
	if missing, err := c.Waits().missingPods(t.Context(), want, c.Rollouts().newProber()); err != nil || len(missing) > 0 {
		t.Errorf("%v %v", missing, err)
	}
	here := lost.DeepCopy()
	here.Name, here.Spec.NodeName = "kube-proxy", "new"
	c, _ = fakeClient(lost, here)
	if missing, err := c.Waits().missingPods(t.Context(), want, c.Rollouts().newProber()); err != nil || len(missing) != 1 {
		t.Errorf("%v %v", missing, err)
	}
}
