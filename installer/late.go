package installer

import (
	"context"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"airlift/installer/preflight"
	"airlift/installer/timeline"
)

// probePeriod is the period of CoreDNS's readiness probe, which kubeadm's
// manifest leaves at the API's default.
const probePeriod = 10 * time.Second

// holdCoreDNS takes CoreDNS's Deployment out of its objects, to be created when
// a kubelet that init has just started is as old as that period. To a pod that
// a kubelet meets while it is younger it puts the first probe off by a random
// part of the period (run in its prober/worker.go): two pods together become
// Ready sooner if they start a little later.
func (n *Node) holdCoreDNS(objects []runtime.Object) []runtime.Object {
	if n.role != preflight.Init || n.Single || n.Config.CNI == "none" || n.skips("wait-node") || time.Since(n.kubeletBegan) > probePeriod {
		return objects
	}
	return slices.DeleteFunc(objects, func(o runtime.Object) bool {
		_, is := o.(*appsv1.Deployment)
		if is {
			n.late = append(n.late, o)
		}
		return is
	})
}

// applyLate creates what was held back, when its time has come.
func (n *Node) applyLate(ctx context.Context) error {
	if len(n.late) == 0 {
		return nil
	}
	if err := n.settleKubelet(ctx); err != nil {
		return err
	}
	err := n.applied(n.client.Apply(ctx, n.late...))
	n.late = nil
	return err
}

func (n *Node) settleKubelet(ctx context.Context) error {
	defer timeline.Wait(ctx, "the kubelet's first probes").End()
	select {
	case <-time.After(time.Until(n.kubeletBegan.Add(probePeriod))):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
