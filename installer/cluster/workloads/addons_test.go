package workloads

import (
	"testing"

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
