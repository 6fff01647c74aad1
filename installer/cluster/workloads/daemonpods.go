package workloads

import (
	"context"
	"fmt"

	"k8s.io/client-go/kubernetes"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"airlift/installer/cluster"
	"airlift/installer/cluster/wait"
)

// RestartDaemonPods deletes the pods of a node that belong to DaemonSets in these namespaces, so
// that new ones start with the current templates and ConfigMaps. It returns their names.
func RestartDaemonPods(ctx context.Context, api kubernetes.Interface, node string, namespaces ...string) (restarted []string, err error) {
	for _, ns := range namespaces {
		pods, err := wait.List(ctx, api.CoreV1().Pods(ns).List, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
		if err != nil {
			return restarted, fmt.Errorf("listing the pods of node %q: %w", node, err)
		}
		for _, p := range pods.Items {
			if owner := metav1.GetControllerOf(&p); owner == nil || owner.Kind != "DaemonSet" {
				continue
			}
			err := wait.Retry(ctx, func() error { return api.CoreV1().Pods(ns).Delete(ctx, p.Name, metav1.DeleteOptions{}) })
			if err != nil && !apierrors.IsNotFound(err) {
				return restarted, fmt.Errorf("restarting pod %s: %w", cluster.Qualified(ns, p.Name), err)
			}
			restarted = append(restarted, cluster.Qualified(ns, p.Name))
		}
	}
	return restarted, nil
}
