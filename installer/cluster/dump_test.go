package cluster

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestNodeClocks(t *testing.T) {
	renewed := metav1.NewMicroTime(time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC))
	c, _ := fakeClient(
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "host1"}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "host2"}},
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-node-lease", Name: "host1"}, Spec: coordinationv1.LeaseSpec{RenewTime: &renewed}},
	)
	list, err := c.NodeClocks(t.Context())
	if err != nil || len(list) != 1 || list[0].Node != "host1" || !list[0].Ready || !list[0].Renewed.Equal(renewed.Time) {
		t.Errorf("%+v, %v", list, err)
	}
}

func TestListRefusesSecrets(t *testing.T) {
	c, _ := fakeClient()
	if _, err := c.List(t.Context(), Listing{Version: "v1", Resource: "secrets"}); err == nil {
		t.Error("Secrets are listed")
	}
}
