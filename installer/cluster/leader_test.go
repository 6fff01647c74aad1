package cluster

import (
	"context"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestWaitForControllerManager: the lease of a leader that has ended is not enough.
func TestWaitForControllerManager(t *testing.T) {
	ctx := context.Background()
	none, _ := fakeClient()
	if err := none.WaitForControllerManager(ctx, time.Second, nil); err != nil {
		t.Errorf("without a lease: %v", err)
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "kube-controller-manager", Namespace: "kube-system"}}
	lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
	c, _ := fakeClient(lease)
	if err := c.WaitForControllerManager(ctx, time.Second, nil); err == nil || !strings.Contains(err.Error(), "its lease in kube-system is not renewed") {
		t.Errorf("a lease that nobody renews: %v", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.WaitForControllerManager(ctx, time.Minute, nil) }()
	for i := 1; ; i++ {
		select {
		case err := <-ended:
			if err != nil || i <= leaderRenewals {
				t.Errorf("after %d renewals: %v", i-1, err)
			}
			return
		case <-time.After(400 * time.Millisecond):
		}
		next := lease.DeepCopy()
		next.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
		if _, err := c.api.CoordinationV1().Leases("kube-system").Update(ctx, next, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}
