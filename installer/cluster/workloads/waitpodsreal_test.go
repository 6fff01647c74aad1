package workloads

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"airlift/scripts/fixtures/testcluster/testclient"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"airlift/scripts/fixtures/testcluster"
)

func TestRealPodsAreWaitedFor(t *testing.T) {
	p := testcluster.Start(t)
	ctx, super := testcluster.Within(t), testclient.Super(t, p)
	const ns = "wait-pods"
	err := testcluster.LastSeen(func(d time.Duration) error {
		return WaitForPods(ctx, super.API, Pods{Namespaces: []string{"default"}, Names: []string{"default/ghost"}}, d, nil)
	})
	if err == nil || !strings.Contains(err.Error(), "default/ghost: does not exist") {
		t.Errorf("absent pod: %v", err)
	}
	testcluster.Must(super.Apply(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: ns}},
	))(t)
	noToken := false
	testcluster.Must(super.Apply(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "static-cp1", Namespace: ns},
		Spec:       corev1.PodSpec{AutomountServiceAccountToken: &noToken, Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}))(t)
	want := Pods{Namespaces: []string{ns}, Names: []string{ns + "/static-cp1"}}
	err = testcluster.LastSeen(func(d time.Duration) error { return WaitForPods(ctx, super.API, want, d, nil) })
	if err == nil || !strings.Contains(err.Error(), ns+"/static-cp1: Pending") {
		t.Errorf("pending pod: %v", err)
	}
	setStatus := func(status corev1.PodStatus) {
		patch := testcluster.Must(json.Marshal(map[string]any{"status": status}))(t)
		testcluster.Must(super.API.CoreV1().Pods(ns).Patch(ctx, "static-cp1", types.MergePatchType, patch, metav1.PatchOptions{}, "status"))(t)
	}
	setStatus(corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{Name: "c",
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImageNeverPull", Message: "image none is not present"}}}}})
	err = testcluster.LastSeen(func(d time.Duration) error { return WaitForPods(ctx, super.API, want, d, nil) })
	if err == nil || !strings.Contains(err.Error(), "container c: ErrImageNeverPull: image none is not present") {
		t.Errorf("waiting pod: %v", err)
	}
	time.AfterFunc(300*time.Millisecond, func() {
		setStatus(corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}})
	})
	if err := WaitForPods(ctx, super.API, want, time.Minute, nil); err != nil {
		t.Error(err)
	}
	// In this cluster no pods exist for the Deployments and DaemonSets in
	// kube-system.
	testcluster.Must(super.Apply(ctx, testcluster.Must(p.InitPhases()["coredns"]())(t)...))(t)
	err = testcluster.LastSeen(func(d time.Duration) error {
		return WaitForPods(ctx, super.API, Pods{Namespaces: []string{"kube-system"}}, d, nil)
	})
	if err == nil || !strings.Contains(err.Error(), "deployment kube-system/coredns: 0 of 2 pods ready") {
		t.Errorf("deployment without pods: %v", err)
	}
}
