package workloads

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/client-go/kubernetes"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"airlift/installer/cluster"
)

// NotReady has the nodes that are not Ready by their names, and whether their kubelet still reports.
type NotReady map[string]bool

func NodesNotReady(ctx context.Context, api kubernetes.Interface) (NotReady, error) {
	nodes, err := api.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	list := NotReady{}
	for i, n := range nodes.Items {
		if ready, _ := cluster.NodeReady(&nodes.Items[i]); !ready {
			list[n.Name] = slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
				return c.Type == corev1.NodeReady && c.Status == corev1.ConditionFalse
			})
		}
	}
	return list, nil
}

// Causes reports whether a pod is not ready because of its node. While the kubelet reports, a pod whose container fails may be what
// keeps the node from being Ready: one of the network.
func (n NotReady) Causes(p *corev1.Pod) bool {
	reports, down := n[p.Spec.NodeName]
	fails := func(s corev1.ContainerStatus) bool {
		w, t := s.State.Waiting, s.State.Terminated
		return w != nil && w.Reason == crashLoop || t != nil && t.ExitCode != 0
	}
	return down && !(reports && (len(startProblems(p)) > 0 || slices.ContainsFunc(slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses), fails)))
}

// Explain returns why pods of a workload are not ready, if all that it lacks are pods on these nodes, and "" otherwise: then there
// is another cause.
func (n NotReady) Explain(pods []corev1.Pod, lacks int32) string {
	nodes := map[string]bool{}
	for i := range pods {
		p := &pods[i]
		ready, _ := PodReady(p)
		switch {
		case ready:
		case n.Causes(p) && (!IsReplaced(p) || keepsPlace(p)):
			nodes[p.Spec.NodeName] = true
			lacks--
		case !IsReplaced(p):
			return ""
		}
	}
	if len(nodes) == 0 || lacks > 0 {
		return ""
	}
	var why []string
	for name := range nodes {
		why = append(why, "node "+name+" is not Ready")
	}
	slices.Sort(why)
	return strings.Join(why, ", ")
}

// keepsPlace reports whether the controller of a pod creates no other one before it is gone. On a node that is lost, it is never gone.
func keepsPlace(p *corev1.Pod) bool {
	owner := metav1.GetControllerOf(p)
	return owner != nil && slices.Contains([]string{"StatefulSet", "DaemonSet"}, owner.Kind)
}
