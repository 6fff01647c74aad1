package cluster

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The mirror pod of the current static pod, and those of other nodes, stay.
func TestDeleteMirrorPod(t *testing.T) {
	mirror := func(name, uid string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "kube-system", Annotations: map[string]string{configHash: uid}}}
	}
	c, writes := fakeClient(mirror("kube-scheduler-n-1", "old"), mirror("kube-scheduler-n-2", "old"), mirror("kube-controller-manager-n-1", "new"))
	former := func(uid string) bool { return uid == "old" }
	for component, want := range map[string]bool{"kube-scheduler": true, "kube-controller-manager": false, "etcd": false} {
		if deleted, err := c.DeleteMirrorPod(context.Background(), component, "n-1", former); err != nil || deleted != want {
			t.Errorf("%s: %v, %v", component, deleted, err)
		}
	}
	if got := writes(); !slices.Equal(got, []string{"delete pods"}) {
		t.Errorf("%v", got)
	}
	left, err := c.api.CoreV1().Pods("kube-system").List(context.Background(), metav1.ListOptions{})
	if err != nil || len(left.Items) != 2 || left.Items[0].Name != "kube-controller-manager-n-1" || left.Items[1].Name != "kube-scheduler-n-2" {
		t.Errorf("%v, %v", left.Items, err)
	}
}
