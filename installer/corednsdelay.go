package installer

import (
	"context"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"airlift/installer/timeline"
)

// probePeriod is the period of CoreDNS's readiness probe. kubeadm's manifest
// does not set it, so it is the default of the API.
const probePeriod = 10 * time.Second

// delayCoreDNS takes CoreDNS's Deployment out of the objects if the kubelet
// that this run started is younger than probePeriod. Such a kubelet delays the
// first probe of a pod by a random part of the period (run in its
// prober/worker.go). CoreDNS's two pods become Ready sooner if they start a
// little later.
func (a *addons) delayCoreDNS(objects []runtime.Object) []runtime.Object {
	if a.plan.onePhase || a.config.CNI == "none" || a.plan.skips("wait-node") || time.Since(a.kubeletStarted) > probePeriod {
		return objects
	}
	return slices.DeleteFunc(objects, func(o runtime.Object) bool {
		_, is := o.(*appsv1.Deployment)
		if is {
			a.delayed = append(a.delayed, o)
		}
		return is
	})
}

// applyDelayed waits until the kubelet is old enough and creates the delayed
// objects.
func (a *addons) applyDelayed(ctx context.Context) error {
	if len(a.delayed) == 0 {
		return nil
	}
	if err := a.waitKubeletAge(ctx); err != nil {
		return err
	}
	err := a.applied(a.client.Apply(ctx, a.delayed...))
	a.delayed = nil
	return err
}

func (a *addons) waitKubeletAge(ctx context.Context) error {
	defer timeline.Wait(ctx, "the kubelet's first probes").End()
	select {
	case <-time.After(time.Until(a.kubeletStarted.Add(probePeriod))):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
