package cluster

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// leaderRenewals is how often the leader must renew its lease while somebody watches. Between the
// first and the last time, a new leader starts its controllers.
const leaderRenewals = 2

// WaitForControllerManager waits until a controller manager acts: the one that was the leader may
// have ended without giving its lease back, and the next waits until it expires. A lease that does
// not exist or may not be read is no reason to wait.
func (c *Client) WaitForControllerManager(ctx context.Context, timeout time.Duration, report Report) error {
	var last time.Time
	renewals := -1 // the first look finds what may be old
	w := wait{what: "a controller manager to be the leader", timeout: timeout, report: report}
	return w.until(ctx, nil, func(ctx context.Context) (bool, string, error) {
		lease, err := c.api.CoordinationV1().Leases(systemNamespace).Get(ctx, "kube-controller-manager", metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
			return true, "", nil
		case err != nil:
			return false, err.Error(), nil
		case lease.Spec.RenewTime != nil && !lease.Spec.RenewTime.Time.Equal(last):
			last = lease.Spec.RenewTime.Time
			renewals++
		}
		return renewals >= leaderRenewals, "its lease in kube-system is not renewed", nil
	})
}
