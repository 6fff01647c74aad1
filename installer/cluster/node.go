package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"airlift/installer/cluster/wait"
	"airlift/installer/config"
	"airlift/internal/fault"
)

// MarkControlPlane gives a node the labels and taints of a control plane. Nil
// taints mean kubeadm's default, an empty slice means none. Other labels and
// taints stay; one of the same key and effect is replaced.
func (c NodeObjects) MarkControlPlane(ctx context.Context, node string, taints []corev1.Taint) (changed bool, err error) {
	if taints == nil {
		taints = []corev1.Taint{config.ControlPlaneTaint}
	}
	changed, err = c.PatchNode(ctx, node, func(n *corev1.Node) {
		if n.Labels == nil {
			n.Labels = map[string]string{}
		}
		n.Labels[ControlPlaneLabel] = ""
		n.Labels[noExternalLBLabel] = ""
		for _, taint := range taints {
			i := slices.IndexFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&taint) })
			switch {
			case i < 0:
				n.Spec.Taints = append(n.Spec.Taints, taint)
			case n.Spec.Taints[i].Value != taint.Value:
				n.Spec.Taints[i] = taint
			}
		}
	})
	if err != nil {
		return changed, fmt.Errorf("marking node %q as control plane: %w", node, err)
	}
	return changed, nil
}

// AnnotateCRISocket sets the annotation from which kubeadm's reset and upgrade
// read the container runtime's socket. The kubelet's permissions suffice.
func (c NodeObjects) AnnotateCRISocket(ctx context.Context, node, socket string) (changed bool, err error) {
	changed, err = c.PatchNode(ctx, node, func(n *corev1.Node) {
		if n.Annotations == nil {
			n.Annotations = map[string]string{}
		}
		n.Annotations[criSocketAnnotation] = socket
	})
	if err != nil {
		return changed, fmt.Errorf("annotating node %q with its container runtime: %w", node, err)
	}
	return changed, nil
}

// CheckNodeNameFree fails if the cluster has a Ready node with that name: this
// host would take over its identity. A node that is not Ready may be this host
// before a reset.
func (c NodeObjects) CheckNodeNameFree(ctx context.Context, name string) error {
	node, err := wait.Get(ctx, c.client.API.CoreV1().Nodes().Get, name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("looking up node %q in the cluster: %w", name, err)
	}
	if ready, _ := NodeReady(node); ready {
		return fault.New(fault.Failure,
			"the cluster already has a Ready node named %q", name).
			Hint(fmt.Sprintf("choose another name with --node-name, or, if that node is gone, on a control plane: ./install node remove %s", name))
	}
	return nil
}

// PatchNode applies edit to the node and sends a patch only if something
// changed. The patch contains the resourceVersion that edit saw: a merge patch
// replaces the whole list of taints, which the node controller also changes.
func (c NodeObjects) PatchNode(ctx context.Context, name string, edit func(*corev1.Node)) (changed bool, err error) {
	try := func() error {
		have, err := c.client.API.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		want := have.DeepCopy()
		edit(want)
		patch, err := nodePatch(have, want)
		if err != nil || patch == nil {
			return err
		}
		_, err = c.client.API.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		changed = err == nil
		return err
	}
	err = wait.Retry(ctx, func() error { return retry.RetryOnConflict(retry.DefaultBackoff, try) })
	return changed, err
}

// nodePatch is the JSON merge patch from have to want, which may differ in
// labels, annotations and taints, or nil when they do not.
func nodePatch(have, want *corev1.Node) ([]byte, error) {
	labels, annotations := changed(have.Labels, want.Labels), changed(have.Annotations, want.Annotations)
	patch := map[string]any{}
	metadata := map[string]any{"resourceVersion": have.ResourceVersion}
	if labels != nil {
		metadata["labels"] = labels
	}
	if annotations != nil {
		metadata["annotations"] = annotations
	}
	if !slices.EqualFunc(have.Spec.Taints, want.Spec.Taints, func(a, b corev1.Taint) bool {
		return a.MatchTaint(&b) && a.Value == b.Value
	}) {
		patch["spec"] = map[string]any{"taints": want.Spec.Taints}
	}
	if labels == nil && annotations == nil && len(patch) == 0 {
		return nil, nil
	}
	patch["metadata"] = metadata
	return json.Marshal(patch)
}

// changed returns the entries of want that are not in have, and nil for those that are only in have. It is nil if there are
// none.
func changed(have, want map[string]string) map[string]any {
	var diff map[string]any
	set := func(key string, value any) {
		if diff == nil {
			diff = map[string]any{}
		}
		diff[key] = value
	}
	for key, value := range want {
		if old, ok := have[key]; !ok || old != value {
			set(key, value)
		}
	}
	for key := range have {
		if _, ok := want[key]; !ok {
			set(key, nil)
		}
	}
	return diff
}

// SetUnschedulable cordons or uncordons a node. The kubelet's permissions suffice.
func (c NodeObjects) SetUnschedulable(ctx context.Context, node string, yes bool) error {
	patch := fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, yes)
	err := wait.Retry(ctx, func() error {
		_, err := c.client.API.CoreV1().Nodes().Patch(ctx, node, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("changing whether pods can be scheduled on node %q: %w", node, err)
	}
	return nil
}

// DeleteNode deletes the Node with a UID. It is no error if the Node is gone.
func (c NodeObjects) DeleteNode(ctx context.Context, name string, uid types.UID) error {
	err := wait.Retry(ctx, func() error {
		return c.client.API.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	})
	switch {
	case err == nil, apierrors.IsNotFound(err):
		return c.forget(ctx, name)
	case apierrors.IsConflict(err):
		return fault.New(fault.Failure, "a host has registered again under the name %q", name).Hint("stop its kubelet (systemctl stop kubelet), then run the same command again")
	}
	return fmt.Errorf("deleting node %q: %w", name, err)
}
