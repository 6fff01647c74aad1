package lease

import (
	"context"
	"crypto/rand"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"airlift/installer/cluster"
)

// A lease is a Lease in kube-system, as one process sees it that takes it or waits for it.
type lease struct {
	name     string
	node     string        // of this process; it must have the lock of its host
	holder   string        // of this process only: NODE_RANDOM
	duration time.Duration // after how long without renewal someone else may take it

	held   bool // this process took it
	seen   coordinationv1.LeaseSpec
	since  time.Time // since when this process has seen it so
	looked time.Time
}

// newLease returns the lease of a process on a node.
func newLease(name, node string, duration time.Duration) *lease {
	return &lease{name: name, node: node, holder: node + "_" + rand.Text(), duration: duration}
}

// holderNode returns the node in a holder's identity. Earlier versions of Airlift wrote only the
// node name. The name of a host without a kubelet.conf may contain _.
func holderNode(holder string) string {
	if i := strings.LastIndexByte(holder, '_'); i >= 0 {
		return holder[:i]
	}
	return holder
}

// maxLeaseGap is the longest time between two looks at a Lease that count as one observation. While
// no API server answers, its holder cannot renew it either.
const maxLeaseGap = time.Minute

// take takes the Lease, or renews it. other is the node of the holder that has it instead. Another
// holder keeps it until it drops it, or until this process has seen for the duration of that holder
// that nobody renews it: then that holder did not finish. A holder on the node of this process has
// ended in any case, because this process has the lock of the host. The times in the Lease are not
// used, because they are by the clock of another host. A process that once had the Lease does not
// take it from another holder.
func (l *lease) take(ctx context.Context, c *cluster.Client) (other string, err error) {
	for range 3 {
		other, err = l.takeOnce(ctx, c)
		// Another process was faster, or an earlier request of this one was late.
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			break
		}
	}
	l.held = l.held || err == nil && other == ""
	return other, err
}

func (l *lease) takeOnce(ctx context.Context, c *cluster.Client) (other string, err error) {
	leases := c.API.CoordinationV1().Leases(metav1.NamespaceSystem)
	now := metav1.NowMicro()
	spec := coordinationv1.LeaseSpec{
		HolderIdentity:       ptr.To(l.holder),
		LeaseDurationSeconds: ptr.To(int32(l.duration / time.Second)),
		AcquireTime:          &now,
		RenewTime:            &now,
	}
	found, err := leases.Get(ctx, l.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: l.name}, Spec: spec}, metav1.CreateOptions{})
	case err != nil:
	case l.mayTake(found.Spec):
		found.Spec = spec
		_, err = leases.Update(ctx, found, metav1.UpdateOptions{})
	default:
		other = holderNode(*found.Spec.HolderIdentity)
	}
	return other, err
}

// mayTake reports whether this process may take or renew the Lease as it is now.
func (l *lease) mayTake(spec coordinationv1.LeaseSpec) bool {
	now := time.Now()
	if now.Sub(l.looked) > maxLeaseGap || !equality.Semantic.DeepEqual(spec, l.seen) {
		l.seen, l.since = spec, now
	}
	l.looked = now
	switch holder := ptr.Deref(spec.HolderIdentity, ""); {
	case holder == "" || holder == l.holder:
		return true
	case l.held:
		return false
	default:
		return holderNode(holder) == l.node || now.Sub(l.since) > time.Duration(ptr.Deref(spec.LeaseDurationSeconds, 0))*time.Second
	}
}

// drop deletes the Lease, if this process has it.
func (l *lease) drop(ctx context.Context, c *cluster.Client) error {
	leases := c.API.CoordinationV1().Leases(metav1.NamespaceSystem)
	for {
		found, err := leases.Get(ctx, l.name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && ptr.Deref(found.Spec.HolderIdentity, "") != l.holder {
			return nil
		}
		if err != nil {
			return err
		}
		err = leases.Delete(ctx, l.name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &found.UID, ResourceVersion: &found.ResourceVersion}})
		if !apierrors.IsConflict(err) { // or a late request of this process has renewed it
			return err
		}
	}
}

// ReleaseLeadership gives back the Lease of a component that has ended on a host without doing so, as
// client-go's leader election does. Otherwise the next leader waits until it expires, 15 seconds by
// default. The holder's identity is the host's name and a UUID. A Lease that is renewed within idle stays:
// another host with that name has it.
func ReleaseLeadership(ctx context.Context, api kubernetes.Interface, component, hostname string, idle time.Duration) (released bool, err error) {
	leases := api.CoordinationV1().Leases(metav1.NamespaceSystem)
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
