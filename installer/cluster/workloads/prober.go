package workloads

import (
	"context"
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// A prober triggers the kubelet's readiness probes. The kubelet probes a pod
// when it starts its containers, and then every ten seconds by default: a pod
// that becomes ready just after the first probe is Ready ten seconds late. The
// kubelet also probes when a pod's annotations change (UpdatePodStatus in
// prober/prober_manager.go), so the prober changes an annotation, and removes
// it at the end.
type prober struct {
	api    kubernetes.Interface
	probed map[types.NamespacedName]time.Time // time of the last trigger
	// interval is the time between two triggers of a pod. On a slow host each costs so much that
	// many delay what they probe: then it is longer, up to the kubelet's own interval.
	interval time.Duration
}

const (
	probeAnnotation = "airlift.dev/ready"
	probeInterval   = time.Second
	kubeletInterval = 10 * time.Second // the default of periodSeconds
)

func newProber(api kubernetes.Interface) *prober {
	return &prober{api: api, probed: map[types.NamespacedName]time.Time{}, interval: probeInterval}
}

// check triggers a probe of a pod that is not ready, and removes the annotation of a ready pod.
// Errors are ignored: the kubelet probes by itself later.
func (p *prober) check(ctx context.Context, pod *corev1.Pod, ready bool) {
	name := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
	last, probed := p.probed[name]
	switch {
	case ready && probed:
		p.annotate(ctx, name, nil)
		delete(p.probed, name)
	case !ready && probeable(pod) && time.Since(last) >= p.interval:
		p.probed[name] = time.Now()
		p.annotate(ctx, name, p.probed[name].UTC().Format(time.RFC3339Nano))
		p.interval = min(max(probeInterval, 10*time.Since(p.probed[name])), kubeletInterval)
	}
}

// probeable reports whether all containers of a pod run and one has a readiness
// probe. Static pods cannot be changed through the API.
func probeable(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	if pod.Status.Phase != corev1.PodRunning || owner == nil || owner.Kind == "Node" {
		return false
	}
	probed := false
	for _, c := range pod.Spec.Containers {
		probed = probed || c.ReadinessProbe != nil
	}
	for _, s := range pod.Status.ContainerStatuses {
		if s.State.Running == nil {
			return false
		}
	}
	return probed
}

// stop removes all remaining annotations.
func (p *prober) stop(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	for name := range p.probed {
		p.annotate(ctx, name, nil)
	}
}

func (p *prober) annotate(ctx context.Context, pod types.NamespacedName, value any) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{probeAnnotation: value}}})
	if err != nil {
		return
	}
	_, _ = p.api.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{})
}
