package cluster

import (
	"context"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// TurnLease is the Lease that a control plane has while it restarts its components, so that only one
// does: etcd keeps its quorum, and the other API servers answer.
const TurnLease = "airlift-control-plane"

// TakeLease takes a Lease in kube-system for holder, and returns who has it afterwards. Another
// holder keeps it until it is dropped, or until it is older than the duration with which it was
// taken: then its holder did not finish.
func (c *Client) TakeLease(ctx context.Context, name, holder string, duration time.Duration, now time.Time) (has string, err error) {
	leases := c.api.CoordinationV1().Leases(systemNamespace)
	spec := coordinationv1.LeaseSpec{
		HolderIdentity:       ptr.To(holder),
		LeaseDurationSeconds: ptr.To(int32(duration / time.Second)),
		AcquireTime:          ptr.To(metav1.NewMicroTime(now)),
		RenewTime:            ptr.To(metav1.NewMicroTime(now)),
	}
	found, err := leases.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, metav1.CreateOptions{})
	case err != nil:
		return "", err
	default:
		if other := ptr.Deref(found.Spec.HolderIdentity, ""); other != "" && other != holder && !expiredLease(found.Spec, now) {
			return other, nil
		}
		found.Spec = spec
		_, err = leases.Update(ctx, found, metav1.UpdateOptions{})
	}
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		found, err := leases.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		return ptr.Deref(found.Spec.HolderIdentity, ""), nil
	}
	return holder, err
}

func expiredLease(spec coordinationv1.LeaseSpec, now time.Time) bool {
	renewed := ptr.Deref(spec.RenewTime, metav1.MicroTime{})
	return now.After(renewed.Add(time.Duration(ptr.Deref(spec.LeaseDurationSeconds, 0)) * time.Second))
}

// WaitForLease takes a Lease as TakeLease does, as soon as no one else has it. A client that may not
// use Leases does not wait.
func (c *Client) WaitForLease(ctx context.Context, name, holder string, duration, timeout time.Duration, report Report) error {
	w := wait{
		what: "the turn of " + holder, timeout: timeout, interval: leasePoll, report: report,
		hint: "control planes are changed one after the other: run this command again when the other one is ready",
	}
	return w.until(ctx, nil, func(ctx context.Context) (bool, string, error) {
		has, err := c.TakeLease(ctx, name, holder, duration, time.Now())
		switch {
		case apierrors.IsForbidden(err):
			return true, "", nil
		case err != nil:
			return false, err.Error(), nil
		}
		return has == holder, has + " restarts its control plane, and only one may at a time", nil
	})
}

// leasePoll is how often WaitForLease looks.
const leasePoll = 2 * time.Second

// DropLease gives up a Lease that TakeLease took: it deletes it.
func (c *Client) DropLease(ctx context.Context, name, holder string) error {
	leases := c.api.CoordinationV1().Leases(systemNamespace)
	found, err := leases.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && ptr.Deref(found.Spec.HolderIdentity, "") != holder {
		return nil
	}
	if err != nil {
		return err
	}
	err = leases.Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &found.UID, ResourceVersion: &found.ResourceVersion}})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // someone else has it
	}
	return err
}

// ReleaseLeadership gives back the Lease of a component that has ended on a host without doing so, as
// client-go's leader election does. Otherwise the next leader waits until it expires, 15 seconds by
// default. The holder's identity is the host's name and a UUID. A Lease that is renewed within idle stays:
// another host with that name has it.
func (c *Client) ReleaseLeadership(ctx context.Context, component, hostname string, idle time.Duration) (released bool, err error) {
	leases := c.api.CoordinationV1().Leases(systemNamespace)
	before, err := leases.Get(ctx, component, metav1.GetOptions{})
	if err != nil {
		return false, err
	}
	uuid, its := strings.CutPrefix(ptr.Deref(before.Spec.HolderIdentity, ""), hostname+"_")
	if !its || len(uuid) != 36 || strings.Count(uuid, "-") != 4 {
		return false, nil
	}
	select {
	case <-ctx.Done():
		return false, ctx.Err()
	case <-time.After(idle):
	}
	lease, err := leases.Get(ctx, component, metav1.GetOptions{})
	if err != nil {
		return false, err
	}
	if !equality.Semantic.DeepEqual(lease.Spec, before.Spec) {
		return false, nil
	}
	now := metav1.NowMicro()
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = ptr.To(""), ptr.To(int32(1))
	lease.Spec.AcquireTime, lease.Spec.RenewTime = &now, &now
	_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	return err == nil, err
}
