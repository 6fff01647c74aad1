package workloads

import (
	"context"
	"slices"
	"testing"

	"airlift/scripts/fixtures/testcluster/testclient"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"airlift/scripts/fixtures/testcluster"
)

func TestRestartDaemonPods(t *testing.T) {
	pod := func(name, owner string) *corev1.Pod {
		controller := true
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name, OwnerReferences: []metav1.OwnerReference{{Kind: owner, Name: "x", Controller: &controller}}},
			Spec:       corev1.PodSpec{NodeName: "new"},
		}
	}
	c, _ := testclient.Fake(pod("kube-proxy-1", "DaemonSet"), pod("etcd-new", "Node"), pod("coredns-1", "ReplicaSet"))
	restarted, err := RestartDaemonPods(t.Context(), c.API, "new", "kube-system", "kube-flannel")
	if err != nil || !slices.Equal(restarted, []string{"kube-system/kube-proxy-1"}) {
		t.Errorf("%v %v", restarted, err)
	}
}

// TestPodsOfOneNode: pods of lost nodes do not count, but each DaemonSet needs a pod on this one.
func TestPodsOfOneNode(t *testing.T) {
	want := Pods{Namespaces: []string{"kube-system"}, Node: "new", Service: "kube-system/kube-dns"}
	lost := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "coredns"}, Spec: corev1.PodSpec{NodeName: "lost"}}
	c, _ := testclient.Fake(lost)
	if missing, err := missingPods(t.Context(), c.API, want, newProber(c.API)); err != nil || len(missing) > 0 {
		t.Errorf("%v %v", missing, err)
	}
	here := lost.DeepCopy()
	here.Name, here.Spec.NodeName = "kube-proxy", "new"
	c, _ = testclient.Fake(lost, here)
	if missing, err := missingPods(t.Context(), c.API, want, newProber(c.API)); err != nil || len(missing) != 1 {
		t.Errorf("%v %v", missing, err)
	}
}

func TestPodsThatOthersReplaceAreNotWaitedFor(t *testing.T) {
	yes, now := true, metav1.Now()
	pod := func(name string, phase corev1.PodPhase, owner string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "s", OwnerReferences: []metav1.OwnerReference{{Kind: owner, Controller: &yes}}},
			Status:     corev1.PodStatus{Phase: phase},
		}
	}
	going := pod("going", corev1.PodRunning, "ReplicaSet")
	going.DeletionTimestamp, going.Finalizers = &now, []string{"x/y"}
	client, _ := testclient.Fake(pod("evicted", corev1.PodFailed, "ReplicaSet"), pod("static", corev1.PodFailed, "Node"), going)
	missing := testcluster.Must(missingPods(context.Background(), client.API, Pods{Namespaces: []string{"s"}, Names: []string{"s/going"}}, newProber(client.API)))(t)
	if want := []string{"s/static: Failed", "s/going: does not exist"}; !slices.Equal(missing, want) {
		t.Errorf("missing = %q, want %q", missing, want)
	}
}
