package cluster

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"

	"airlift/installer/cluster/health"
	"airlift/installer/cluster/wait"
)

// WaitForNode waits until the kubelet has registered the node.
func (c *Client) WaitForNode(ctx context.Context, name string, timeout time.Duration, report wait.Report) error {
	return c.waitForNode(ctx, name, "to be registered", timeout, report,
		func(*corev1.Node) (bool, string) { return true, "" })
}

// WaitForNodeReady waits until the node's Ready condition is true.
func (c *Client) WaitForNodeReady(ctx context.Context, name string, timeout time.Duration, report wait.Report) error {
	return c.waitForNode(ctx, name, "to be Ready", timeout, report, NodeReady)
}

// WaitForNodeVersion waits until the node's kubelet reports a version, and until it is Ready if
// ready is set.
func (c *Client) WaitForNodeVersion(ctx context.Context, name, version string, ready bool, timeout time.Duration, report wait.Report) error {
	return c.waitForNode(ctx, name, "to report "+version, timeout, report, func(node *corev1.Node) (bool, string) {
		if is := node.Status.NodeInfo.KubeletVersion; is != version {
			return false, "its kubelet is " + is
		}
		if !ready {
			return true, ""
		}
		return NodeReady(node)
	})
}

// WaitForPodCIDR waits until the controller manager has assigned the node its
// pod CIDRs, and returns them.
func (c *Client) WaitForPodCIDR(ctx context.Context, name string, timeout time.Duration, report wait.Report) (cidrs []string, err error) {
	err = c.waitForNode(ctx, name, "to get a pod CIDR", timeout, report, func(node *corev1.Node) (bool, string) {
		cidrs = node.Spec.PodCIDRs
		return len(cidrs) > 0, "the controller manager has not assigned one"
	})
	return cidrs, err
}

func (c *Client) waitForNode(ctx context.Context, name, become string, timeout time.Duration, report wait.Report, is func(*corev1.Node) (bool, string)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// A kubelet's identity may watch only its own node, by name.
	wake := wait.Watch(ctx, func(ctx context.Context) (watch.Interface, error) {
		return c.API.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{
			FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String(),
		})
	})
	w := wait.For{What: fmt.Sprintf("node %q %s", name, become), Short: "the node " + become, Hint: health.KubeletHint, Timeout: timeout, Report: report}
	return w.Until(ctx, wake, func(ctx context.Context) (bool, string, error) {
		node, err := c.API.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, "the node does not exist", nil
		}
		if err != nil {
			return false, err.Error(), nil
		}
		done, state := is(node)
		return done, state, nil
	})
}

// NodeReady also returns why a node is not Ready: the message of its condition
// and of other conditions that report a problem.
func NodeReady(node *corev1.Node) (bool, string) {
	var why []string
	for _, cond := range node.Status.Conditions {
		switch {
		case cond.Type == corev1.NodeReady && cond.Status == corev1.ConditionTrue:
			return true, ""
		case cond.Type == corev1.NodeReady, cond.Status == corev1.ConditionTrue:
			why = append(why, fmt.Sprintf("%s is %s: %s", cond.Type, cond.Status, cond.Message))
		}
	}
	if why == nil {
		return false, "the kubelet has not reported yet"
	}
	return false, strings.Join(why, "; ")
}
