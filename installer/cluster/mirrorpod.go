package cluster

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// configHash is the annotation of a mirror pod that has the UID of its static pod
// (ConfigHashAnnotationKey of k8s.io/kubernetes/pkg/kubelet/types, and ConfigMirrorAnnotationKey,
// which has the same value).
const configHash = "kubernetes.io/config.hash"

// DeleteMirrorPod deletes the mirror pod of a component on a node, the object that shows its static
// pod in the API, if it still shows a static pod for which former returns true. The kubelet then looks
// at the static pod at once, and creates the mirror pod of the current one.
func (c *Client) DeleteMirrorPod(ctx context.Context, component, node string, former func(uid string) bool) (deleted bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	pods := c.api.CoreV1().Pods(systemNamespace)
	pod, err := pods.Get(ctx, component+"-"+node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil || !former(pod.Annotations[configHash]) {
		return false, err
	}
	now := int64(0)
	err = pods.Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &now, Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
	return err == nil, err
}
