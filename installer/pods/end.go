package pods

import (
	"context"
	"path"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"airlift/images/store"
	"airlift/installer/cluster/health"
	"airlift/installer/config"
	"airlift/installer/node"
)

// replacedAnnotation is in the manifest of a static pod while its pod ends and a new manifest follows. Its
// value is the time at which it was written.
const replacedAnnotation = "airlift.dev/replaced"

// replacedInterval is the time after which the annotation gets another value, while the previous containers
// run. The kubelet starts the pod of a changed manifest only after the previous pod has ended, and looks
// again after 10 to 15 seconds (backOffPeriod of k8s.io/kubernetes/pkg/kubelet). So when the containers
// have ended, six of these seconds are left for the kubelet to remove the pod, and for WorkerEnd.
const replacedInterval = 4 * time.Second

// endTimeout limits the wait for the end of a pod: stopGrace, and what the kubelet needs to clean up.
const endTimeout = stopGrace + 15*time.Second

// WorkerEnd is how long the kubelet may go on with a pod whose directory it has removed: its sync loop
// takes up a pod that has ended once a second (syncLoop of that package), and a slow host needs time. In
// this time a leader also renews its Lease: by default it does so every two seconds (RetryPeriod of
// k8s.io/component-base/config).
const WorkerEnd = 2500 * time.Millisecond

// endPod makes the kubelet end the pod of a component before its new manifest is written, and waits until
// it has removed the pod. The kubelet starts the pod of a manifest that is written after that at once.
//
// Meanwhile the previous manifest stays, with an annotation: for the kubelet, it is another pod. If the
// host loses power, the kubelet starts the previous version. A kubelet that needs too long waits by
// itself after the new manifest is written, so nothing here is an error.
func (s *StaticPods) endPod(ctx context.Context, component string, manifest []byte, containers []store.Container, grace time.Duration) {
	annotate := func() error {
		annotated, err := withAnnotation(manifest, replacedAnnotation, time.Now().UTC().Format(time.RFC3339Nano))
		if err == nil {
			_, err = s.Host.WriteFile(node.ManifestPath(component), annotated, 0o600)
		}
		return err
	}
	withoutAPI := component == node.EtcdPod && s.APIServerFollows
	if withoutAPI {
		// Otherwise etcd waits for the watches of its API server: up to seven seconds (ReqTimeout of
		// go.etcd.io/etcd/server/v3/config).
		s.stopAPIServer(ctx, graceOf(s.Existing, "kube-apiserver"))
	}
	if err := annotate(); err != nil {
		s.Console.Debug(1, "annotating %s: %v", node.ManifestPath(component), err)
		return
	}
	done, finished := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(finished)
		tick := time.NewTicker(replacedInterval)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				if s.anyRuns(ctx, component, containers) {
					_ = annotate() // the new manifest would fail too, and report it
				}
			}
		}
	}()
	s.waitEnd(ctx, component, containers, grace)
	close(done)
	<-finished // only then is the new manifest the last one
	if withoutAPI {
		// Before the kubelet starts the new etcd, it deletes the Pod object of the previous one. An API
		// server that waits for etcd accepts that connection and does not answer. It completes no request.
		s.stopAPIServer(ctx, time.Second)
	}
}

// anyRuns reports whether one of these containers of a component still runs.
func (s *StaticPods) anyRuns(ctx context.Context, component string, containers []store.Container) bool {
	list, err := s.Containers(ctx, component)
	return err == nil && slices.ContainsFunc(list, func(c store.Container) bool {
		return running(c) && slices.ContainsFunc(containers, func(former store.Container) bool { return former.ID == c.ID })
	})
}

// stopAPIServer stops this host's API server. The kubelet starts it again.
func (s *StaticPods) stopAPIServer(ctx context.Context, grace time.Duration) {
	list, err := s.Containers(ctx, "kube-apiserver")
	if err == nil {
		err = s.stop(ctx, list, grace)
	}
	if err != nil && ctx.Err() == nil {
		s.Console.Debug(1, "%v", err)
	}
}

// waitEnd waits until the kubelet has ended and removed the pod of containers.
func (s *StaticPods) waitEnd(ctx context.Context, component string, containers []store.Container, grace time.Duration) {
	var err error
	if grace < stopGrace {
		err = s.stop(ctx, containers, grace)
	}
	if err == nil {
		err = health.WaitForEnd(ctx, component, endTimeout, s.Report, func(context.Context) (bool, string, error) {
			left := func(c store.Container) bool { return s.Exists(path.Join(config.KubeletDir, "pods", c.PodUID)) }
			return !slices.ContainsFunc(containers, left), "the kubelet has not removed its pod", nil
		})
	}
	if err != nil {
		if ctx.Err() == nil {
			s.Console.Debug(1, "%v", err)
		}
		return
	}
	workerEnded := time.After(WorkerEnd)
	if s.Ended != nil {
		s.Ended(ctx, component)
	}
	select {
	case <-ctx.Done():
	case <-workerEnded:
	}
}

// withAnnotation returns a manifest with an annotation.
func withAnnotation(manifest []byte, name, value string) ([]byte, error) {
	var pod unstructured.Unstructured
	if err := yaml.Unmarshal(manifest, &pod.Object); err != nil {
		return nil, err
	}
	annotations := pod.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[name] = value
	pod.SetAnnotations(annotations)
	return yaml.Marshal(pod.Object)
}
