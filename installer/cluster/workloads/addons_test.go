package workloads

import (
	"testing"
	"time"

	"airlift/scripts/fixtures/testcluster/testclient"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAddOns(t *testing.T) {
	labels := map[string]string{"k8s-app": "kube-dns"}
	two := int32(2)
	template := func(image string) corev1.PodTemplateSpec {
		return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Image: image}}}}
	}
	c, writes := testclient.Fake(
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "coredns"}, Spec: appsv1.DeploymentSpec{Replicas: &two, Template: template("localhost:5000/coredns:v1.11.1@sha256:ab")}, Status: appsv1.DeploymentStatus{ReadyReplicas: 1}},
		&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-proxy"}, Spec: appsv1.DaemonSetSpec{Template: template("registry.k8s.io/kube-proxy:v1.37.1")}, Status: appsv1.DaemonSetStatus{NumberReady: 3, DesiredNumberScheduled: 3}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "coredns-a", Labels: labels}, Status: corev1.PodStatus{Phase: corev1.PodRunning,
			ContainerStatuses: []corev1.ContainerStatus{{Name: "coredns", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImageNeverPull", Message: "not here"}}}}}},
	)
	list, err := AddOns(t.Context(), c.API)
	if err != nil || len(list) != 2 || len(writes()) != 0 {
		t.Fatalf("%+v, %v", list, err)
	}
	dns, proxy := list[0], list[1]
	if dns.Name != "coredns" || dns.Version != "v1.11.1" || dns.Ready != 1 || dns.Wanted != 2 || dns.Reason != "pod coredns-a: container coredns: ErrImageNeverPull: not here" {
		t.Errorf("%+v", dns)
	}
	if proxy.Name != "kube-proxy" || proxy.Version != "v1.37.1" || proxy.Ready != 3 || proxy.Reason != "" {
		t.Errorf("%+v", proxy)
	}
}

// TestStartingPods: a pod that has just been created is no problem, unless something has failed in it.
func TestStartingPods(t *testing.T) {
	labels := map[string]string{"app": "flannel"}
	meta := metav1.ObjectMeta{Namespace: "kube-flannel", Name: "kube-flannel-ds", Labels: labels}
	creating := func(reason string) corev1.PodStatus {
		return corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{Name: "x", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}}}
	}
	crashed := creating("CrashLoopBackOff")
	crashed.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 1}
	for name, one := range map[string]struct {
		age      time.Duration
		node     string
		status   corev1.PodStatus
		wanted   int32
		starting bool
	}{
		"new":                  {3 * time.Second, "n2", creating("ContainerCreating"), 2, true},
		"a clock behind":       {-3 * time.Second, "n2", creating("ContainerCreating"), 2, true},
		"old":                  {2 * time.Minute, "n2", creating("ContainerCreating"), 2, false},
		"no image":             {3 * time.Second, "n2", creating("ErrImageNeverPull"), 2, false},
		"crashed":              {3 * time.Second, "n2", crashed, 2, false},
		"not scheduled":        {3 * time.Second, "", corev1.PodStatus{Phase: corev1.PodPending}, 2, false},
		"another is not there": {3 * time.Second, "n2", creating("ContainerCreating"), 3, false},
	} {
		pod := &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{NodeName: one.node}, Status: one.status}
		pod.CreationTimestamp = metav1.NewTime(time.Now().Add(-one.age))
		c, _ := testclient.Fake(pod, &appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}}},
			Status: appsv1.DaemonSetStatus{NumberReady: 1, DesiredNumberScheduled: one.wanted}})
		list, err := AddOns(t.Context(), c.API)
		if err != nil || len(list) != 1 || list[0].Starting != one.starting {
			t.Errorf("%s: %+v, %v", name, list, err)
		}
	}
}
