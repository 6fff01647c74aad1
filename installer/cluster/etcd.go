package cluster

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"airlift/installer/cluster/wait"
)

// mirrorTimeout limits the wait for static pods in the API: the kubelet creates
// their mirror pods after it has registered its node.
const mirrorTimeout = 30 * time.Second

// EtcdEndpoints returns the client URLs of the stacked etcd members from the
// annotation that kubeadm sets on their static pods. It needs an
// administrator's permissions. A kubelet may create any static pod on its own node, so
// only pods of control planes count.
func (c *Client) EtcdEndpoints(ctx context.Context, report wait.Report) (urls []string, err error) {
	w := wait.For{What: "etcd's endpoints in the API", Timeout: mirrorTimeout, Report: report}
	err = w.Until(ctx, nil, func(ctx context.Context) (bool, string, error) {
		pods, err := c.API.CoreV1().Pods(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{LabelSelector: "component=etcd,tier=control-plane"})
		if err != nil {
			return false, err.Error(), nil
		}
		nodes, err := c.API.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: ControlPlaneLabel})
		if err != nil {
			return false, err.Error(), nil
		}
		isControlPlane := map[string]bool{}
		for _, n := range nodes.Items {
			isControlPlane[n.Name] = true
		}
		urls = nil
		for _, p := range pods.Items {
			if url := p.Annotations[etcdURLsAnnotation]; url != "" && isControlPlane[p.Spec.NodeName] {
				urls = append(urls, url)
			}
		}
		return len(urls) > 0, fmt.Sprintf("none of %d etcd pods in %s has the annotation %s", len(pods.Items), metav1.NamespaceSystem, etcdURLsAnnotation), nil
	})
	return urls, err
}
