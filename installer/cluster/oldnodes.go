package cluster

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"airlift/installer/cluster/wait"
)

// The DaemonSet of Airlift's flannel.
const flannelNamespace, flannelDaemonSet = "kube-flannel", "kube-flannel-ds"

// HasFlannel reports whether the cluster's pod network is the flannel that init installs.
func (c NodeObjects) HasFlannel(ctx context.Context) (bool, error) {
	err := wait.Retry(ctx, func() error {
		_, err := c.client.API.AppsV1().DaemonSets(flannelNamespace).Get(ctx, flannelDaemonSet, metav1.GetOptions{})
		return err
	})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("looking for flannel in the cluster: %w", err)
	}
	return true, nil
}

// RemoveOtherControlPlanes deletes the Nodes of all control planes but one, with their pods, which
// no kubelet can stop any more. It returns their names, and the names of the workers.
func (c NodeObjects) RemoveOtherControlPlanes(ctx context.Context, keep string) (removed, workers []string, err error) {
	nodes, err := wait.List(ctx, c.client.API.CoreV1().Nodes().List, metav1.ListOptions{})
	if err != nil {
		return nil, nil, fmt.Errorf("listing the nodes of the cluster: %w", err)
	}
	for _, n := range nodes.Items {
		if n.Name == keep {
			continue
		}
		if _, ok := n.Labels[ControlPlaneLabel]; !ok {
			workers = append(workers, n.Name)
			continue
		}
		if err := c.removeNode(ctx, n.Name); err != nil {
			return removed, workers, fmt.Errorf("removing node %q from the cluster: %w", n.Name, err)
		}
		removed = append(removed, n.Name)
	}
	return removed, workers, nil
}

// removeNode deletes a Node and its pods. That a part of them does not exist is not an error.
func (c NodeObjects) removeNode(ctx context.Context, name string) error {
	pods, err := wait.List(ctx, c.client.API.CoreV1().Pods("").List, metav1.ListOptions{FieldSelector: "spec.nodeName=" + name})
	if err != nil {
		return err
	}
	gone := func(remove func() error) error {
		err := wait.Retry(ctx, remove)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
	if err := gone(func() error { return c.client.API.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{}) }); err != nil {
		return err
	}
	if err := c.forget(ctx, name); err != nil {
		return err
	}
	for _, p := range pods.Items {
		now := int64(0)
		err := gone(func() error {
			return c.client.API.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: &now})
		})
		if err != nil {
			return err
		}
	}
	return nil
}
