package installer

import (
	"context"
	"path"
	"slices"
	"time"

	"airlift/images/store"
	"airlift/installer/cluster"
	"airlift/installer/config"
)

// endTimeout limits the wait for the end of a pod: stopGrace, and what the kubelet needs to clean up.
const endTimeout = stopGrace + 15*time.Second

// endsFirst reports whether the pod of a component ends before its new manifest is written.
//
// The kubelet starts the pod of a changed manifest only after the previous one has ended, and looks
// again after 10 to 15 seconds (backOffPeriod of k8s.io/kubernetes/pkg/kubelet). It starts at once one
// that is written after that. If the host loses power in between, it runs without the component until the
// same command, or undo, writes the manifest. An upgrade that continues needs etcd and the API server, so
// they do not end first.
func (s *StaticPods) endsFirst(component string) bool {
	return s.formerKept && (component == controllerManager || component == "kube-scheduler")
}

// workerEnd is how long the kubelet may go on with a pod whose directory it has removed: its sync loop
// takes up a pod that has ended once a second (syncLoop of that package), and a slow host needs time. In
// this time a leader also renews its Lease: by default it does so every two seconds (RetryPeriod of
// k8s.io/component-base/config).
const workerEnd = 2500 * time.Millisecond

// endPod removes the manifest of a component, and waits until the kubelet has ended and removed its pod.
// A kubelet that needs too long waits by itself after the new manifest is written, so that is no error.
func (s *StaticPods) endPod(ctx context.Context, component string, containers []store.Container) error {
	if err := s.host.Remove(manifestPath(component)); err != nil {
		return err
	}
	err := cluster.WaitForEnd(ctx, component, endTimeout, s.report, func(context.Context) (bool, string, error) {
		left := func(c store.Container) bool { return s.exists(path.Join(config.KubeletDir, "pods", c.PodUID)) }
		return !slices.ContainsFunc(containers, left), "the kubelet has not removed its pod", nil
	})
	if err != nil && ctx.Err() == nil {
		s.console.Debug(1, "%v", err)
	}
	workerEnded := time.After(workerEnd)
	if err == nil && s.ended != nil {
		s.ended(ctx, component)
	}
	select {
	case <-ctx.Done():
	case <-workerEnded:
	}
	return nil
}
