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

// A Lease is a Lease in kube-system, as one process sees it that takes it or waits for it.
type Lease struct {
	Name     string
	Holder   string        // who takes it here
	Duration time.Duration // after how long without renewal someone else may take it

	seen    coordinationv1.LeaseSpec
	changed time.Time // when this process first saw it so
}

// Take takes the Lease, or renews it, and returns who has it afterwards. Another holder keeps it until
// it drops it, or until this process has seen for the duration of that holder that nobody renews it: then
// that holder did not finish. The times in the Lease are not used, because they are by the clock of
// another host.
func (l *Lease) Take(ctx context.Context, c *Client) (has string, err error) {
	leases := c.api.CoordinationV1().Leases(systemNamespace)
	now := metav1.NowMicro()
	spec := coordinationv1.LeaseSpec{
		HolderIdentity:       ptr.To(l.Holder),
		LeaseDurationSeconds: ptr.To(int32(l.Duration / time.Second)),
		AcquireTime:          &now,
		RenewTime:            &now,
	}
	found, err := leases.Get(ctx, l.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: l.Name}, Spec: spec}, metav1.CreateOptions{})
	case err != nil:
		return "", err
	default:
		if other := ptr.Deref(found.Spec.HolderIdentity, ""); other != "" && other != l.Holder && !l.expired(found.Spec) {
			return other, nil
		}
		found.Spec = spec
		_, err = leases.Update(ctx, found, metav1.UpdateOptions{})
	}
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		found, err := leases.Get(ctx, l.Name, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		return ptr.Deref(found.Spec.HolderIdentity, ""), nil
	}
	return l.Holder, err
}

// expired reports whether this process has seen no change for the Lease's duration.
func (l *Lease) expired(spec coordinationv1.LeaseSpec) bool {
	if l.changed.IsZero() || !equality.Semantic.DeepEqual(spec, l.seen) {
		l.seen, l.changed = spec, time.Now()
	}
	return time.Since(l.changed) > time.Duration(ptr.Deref(spec.LeaseDurationSeconds, 0))*time.Second
}

// Wait takes the Lease as Take does, as soon as no one else has it. A client that may not use Leases does
// not wait.
func (l *Lease) Wait(ctx context.Context, c *Client, timeout time.Duration, report Report) error {
	w := wait{
		what: "the turn of " + l.Holder, timeout: timeout, interval: leasePoll, report: report,
		hint: "control planes are changed one after the other: run this command again when the other one is ready",
	}
	return w.until(ctx, nil, func(ctx context.Context) (bool, string, error) {
		has, err := l.Take(ctx, c)
		switch {
		case apierrors.IsForbidden(err):
			return true, "", nil
		case err != nil:
			return false, err.Error(), nil
		}
		return has == l.Holder, has + " restarts its control plane, and only one may at a time", nil
	})
}

// leasePoll is how often Wait looks.
const leasePoll = 2 * time.Second

// Drop gives up a Lease that Take took: it deletes it.
func (l *Lease) Drop(ctx context.Context, c *Client) error {
	leases := c.api.CoordinationV1().Leases(systemNamespace)
	found, err := leases.Get(ctx, l.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && ptr.Deref(found.Spec.HolderIdentity, "") != l.Holder {
		return nil
	}
	if err != nil {
		return err
	}
	err = leases.Delete(ctx, l.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &found.UID, ResourceVersion: &found.ResourceVersion}})
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
