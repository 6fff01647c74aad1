package cluster

import (
	"context"
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A nudger makes the kubelet ask pods again whether they are ready. It asks
// when it starts a pod's containers, and then every ten seconds if the pod says
// nothing else: a pod that was not ready the first time by a moment is found
// ready ten seconds late. But it also asks whenever it looks at a pod anew
// (UpdatePodStatus in its prober/prober_manager.go), and it does that when the
// pod's annotations change. Those of ours are gone again in the end.
type nudger struct {
	client *Client
	nudged map[types.NamespacedName]time.Time // when last
}

const (
	nudgeAnnotation = "airlift.dev/ready"
	nudgeInterval   = time.Second
)

func (c *Client) nudger() *nudger {
	return &nudger{client: c, nudged: map[types.NamespacedName]time.Time{}}
}

// look nudges a pod where it could help, and takes the annotation back where
// it has. What goes wrong is left alone: the kubelet asks by itself later.
func (n *nudger) look(ctx context.Context, pod *corev1.Pod, ready bool) {
	name := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
	last, nudged := n.nudged[name]
	switch {
	case ready && nudged:
		n.annotate(ctx, name, nil)
		delete(n.nudged, name)
	case !ready && askable(pod) && time.Since(last) >= nudgeInterval:
		n.annotate(ctx, name, time.Now().UTC().Format(time.RFC3339Nano))
		n.nudged[name] = time.Now()
	}
}

// askable says whether a pod runs and only its readiness probe says that it is
// not ready. Static pods are not changed through the API.
func askable(pod *corev1.Pod) bool {
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

// stop takes back all annotations that are left.
func (n *nudger) stop(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	for name := range n.nudged {
		n.annotate(ctx, name, nil)
	}
}

func (n *nudger) annotate(ctx context.Context, pod types.NamespacedName, value any) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{nudgeAnnotation: value}}})
	if err != nil {
		return
	}
	_, _ = n.client.api.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{})
}
