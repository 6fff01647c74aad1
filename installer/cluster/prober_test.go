package cluster

import (
	"context"
	"testing"

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
		client, writes := fakeClient(c.pod)
		annotated := func() bool {
			got := must(client.api.CoreV1().Pods("s").Get(ctx, "p", metav1.GetOptions{}))(t)
			_, ok := got.Annotations[probeAnnotation]
			return ok
		}
		p := client.newProber()
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

func TestAssignPodCIDRs(t *testing.T) {
	ctx := context.Background()
	node := func(name string, ranges ...string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{PodCIDRs: ranges}}
	}
	wanted := []string{"10.244.0.0/24", "fd00::/64"}
	for name, c := range map[string]struct {
		nodes   []*corev1.Node
		changed bool
	}{
		"the only node":      {[]*corev1.Node{node("a")}, true},
		"one that has some":  {[]*corev1.Node{node("a", "10.244.7.0/24")}, false},
		"one of two":         {[]*corev1.Node{node("a"), node("b", "10.244.0.0/24")}, false},
		"not registered yet": {nil, false},
	} {
		client, _ := fakeClient()
		for _, n := range c.nodes {
			must(client.api.CoreV1().Nodes().Create(ctx, n, metav1.CreateOptions{}))(t)
		}
		for range 2 { // the second call has nothing to do
			changed := must(client.AssignPodCIDRs(ctx, "a", wanted))(t)
			if changed != c.changed {
				t.Errorf("%s: changed = %v, want %v", name, changed, c.changed)
			}
			c.changed = false
		}
	}
}
