package cluster

import (
	"context"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// reconfigurationAnnotation is on a node that follows a reconfiguration of the cluster: its number.
const reconfigurationAnnotation = "airlift.dev/reconfiguration"

// SetReconfiguration records that a node follows a reconfiguration of the cluster. The kubelet's permissions suffice.
func (c NodeObjects) SetReconfiguration(ctx context.Context, node string, number int) (changed bool, err error) {
	changed, err = c.PatchNode(ctx, node, func(n *corev1.Node) {
		if n.Annotations == nil {
			n.Annotations = map[string]string{}
		}
		n.Annotations[reconfigurationAnnotation] = strconv.Itoa(number)
	})
	if err != nil {
		return changed, fmt.Errorf("annotating node %q with the reconfiguration that it follows: %w", node, err)
	}
	return changed, nil
}

// ReconfigurationOf returns the number of the reconfiguration that a node follows, 0 for none.
func ReconfigurationOf(node *corev1.Node) int {
	number, _ := strconv.Atoi(node.Annotations[reconfigurationAnnotation]) // a damaged one is none
	return number
}
