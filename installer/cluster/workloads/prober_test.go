package workloads

import (
	"context"
	"testing"

	"airlift/scripts/fixtures/testcluster/testclient"

	"airlift/scripts/fixtures/testcluster"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The prober annotates only a running pod that could be ready, at most once a
// second. At the end it removes the annotation.
func TestProber(t *testing.T) {
	ctx := context.Background()
	pod := func(name, owner string, phase corev1.PodPhase, probe *corev1.Probe) *corev1.Pod {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "s", OwnerReferences: []metav1.OwnerReference{{Kind: owner, Name: "x", Controller: new(true)}}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", ReadinessProbe: probe}}},
			Status:     corev1.PodStatus{Phase: phase},
		}
		if phase == corev1.PodRunning {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
		}
		return p
	}
	probe := &corev1.Probe{}
	for name, c := range map[string]struct {
		pod   *corev1.Pod
		ready bool
		want  bool
	}{
		"runs and is probed": {pod("p", "ReplicaSet", corev1.PodRunning, probe), false, true},
		"is ready":           {pod("p", "ReplicaSet", corev1.PodRunning, probe), true, false},
		"is not probed":      {pod("p", "DaemonSet", corev1.PodRunning, nil), false, false},
		"does not run":       {pod("p", "ReplicaSet", corev1.PodPending, probe), false, false},
		"is static":          {pod("p", "Node", corev1.PodRunning, probe), false, false},
	} {
		client, writes := testclient.Fake(c.pod)
		annotated := func() bool {
			got := testcluster.Must(client.API.CoreV1().Pods("s").Get(ctx, "p", metav1.GetOptions{}))(t)
			_, ok := got.Annotations[probeAnnotation]
			return ok
		}
		p := newProber(client.API)
		p.check(ctx, c.pod, c.ready)
		p.check(ctx, c.pod, c.ready)
		if got := annotated(); got != c.want {
			t.Errorf("a pod that %s: annotated = %v, want %v", name, got, c.want)
		}
		if got := len(writes()); got > 1 {
			t.Errorf("a pod that %s: %d writes within a moment", name, got)
		}
		if p.stop(ctx); annotated() {
			t.Errorf("a pod that %s keeps the annotation", name)
		}
	}
}
