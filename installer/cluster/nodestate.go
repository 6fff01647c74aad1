package cluster

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A NodeState is the state of a node for people.
type NodeState struct {
	Name    string `json:"name"`
	Role    string `json:"role"`
	Version string `json:"version"`
	Ready   bool   `json:"ready"`
	Reason  string `json:"reason,omitempty"` // if it is not Ready
	// Addresses are its internal addresses.
	Addresses []string `json:"addresses,omitempty"`
}

// Node returns the state of a node.
func (c *Client) Node(ctx context.Context, name string) (NodeState, error) {
	node, err := c.API.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return NodeState{}, fmt.Errorf("reading node %q: %w", name, err)
	}
	state := NodeState{Name: name, Role: roleOf(node), Version: node.Status.NodeInfo.KubeletVersion}
	state.Ready, state.Reason = NodeReady(node)
	return state, nil
}

func roleOf(node *corev1.Node) string {
	if _, ok := node.Labels[ControlPlaneLabel]; ok {
		return "control-plane"
	}
	return "worker"
}

// Nodes returns the states of all nodes.
func (c *Client) Nodes(ctx context.Context) (list []NodeState, err error) {
	nodes, err := c.API.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	for i := range nodes.Items {
		list = append(list, stateOf(&nodes.Items[i]))
	}
	return list, nil
}

// stateOf returns the state of a node for people.
func stateOf(node *corev1.Node) NodeState {
	state := NodeState{Name: node.Name, Role: roleOf(node), Version: node.Status.NodeInfo.KubeletVersion}
	state.Ready, state.Reason = NodeReady(node)
	for _, a := range node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			state.Addresses = append(state.Addresses, a.Address)
		}
	}
	return state
}
