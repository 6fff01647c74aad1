package cluster

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// mirrorTimeout bounds the wait for static pods to show in the API: the
// kubelet tells it of them when it has registered its node.
const mirrorTimeout = 30 * time.Second

// EtcdEndpoints finds the client URLs of the etcd members that the cluster's
// control planes carry, where kubeadm notes them: on their static pods. The
// administrator's identity may.
func (c *Client) EtcdEndpoints(ctx context.Context, report Report) (urls []string, err error) {
	w := wait{what: "the API to tell where etcd is", timeout: mirrorTimeout, report: report}
	err = w.until(ctx, nil, func(ctx context.Context) (bool, string, error) {
		pods, err := c.api.CoreV1().Pods(systemNamespace).List(ctx, metav1.ListOptions{LabelSelector: "component=etcd,tier=control-plane"})
		if err != nil {
			return false, err.Error(), nil
		}
		urls = nil
		for _, p := range pods.Items {
			if url := p.Annotations[etcdURLsAnnotation]; url != "" {
				urls = append(urls, url)
			}
		}
		return len(urls) > 0, fmt.Sprintf("of %d etcd pods in %s none is annotated with %s", len(pods.Items), systemNamespace, etcdURLsAnnotation), nil
	})
	return urls, err
}
