package cluster

import (
	"context"
	"fmt"
	"slices"

	"airlift/installer/cluster/wait"
	"airlift/installer/config"
	"airlift/internal/fault"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// The roles of a node.
const (
	ControlPlaneRole = "control-plane"
	WorkerRole       = "worker"
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
	// UID is another one when a host registers again under the same name.
	UID types.UID `json:"-"`
	// KubeletPort is the port at which its kubelet serves the API server.
	KubeletPort int32   `json:"-"`
	Follows     Follows `json:"-"`
	// Labels and Taints are in its Node object, taints as key=value:Effect.
	Labels        map[string]string `json:"-"`
	Taints        []string          `json:"-"`
	Unschedulable bool              `json:"-"`
	// Handlers are the runtime handlers of its container runtime. Kubelets report them since Kubernetes v1.31.
	Handlers []string `json:"-"`
}

// GetNode returns a Node. A kubelet's permissions suffice for its own.
func GetNode(ctx context.Context, api kubernetes.Interface, name string) (node *corev1.Node, err error) {
	node, err = wait.Get(ctx, api.CoreV1().Nodes().Get, name)
	return node, readingNode(name, err)
}

// readingNode is the error of a read. A host may be a node no more: another control plane has removed it, or a backup does not have it.
func readingNode(name string, err error) error {
	if err == nil {
		return nil
	}
	err = fmt.Errorf("reading node %q: %w", name, err)
	if apierrors.IsNotFound(err) {
		return fault.Wrap(err, fault.Failure, "see the nodes: kubectl get nodes; if this host was removed from the cluster, remove what is installed on it, and join again: ./install reset --force")
	}
	return err
}

// Node returns the state of a node.
func (c *Client) Node(ctx context.Context, name string) (NodeState, error) {
	node, err := c.API.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return NodeState{}, readingNode(name, err)
	}
	state := NodeState{Name: name, Role: roleOf(node), Version: node.Status.NodeInfo.KubeletVersion, Follows: FollowsOf(node)}
	state.Ready, state.Reason = NodeReady(node)
	return state, nil
}

func roleOf(node *corev1.Node) string {
	if _, ok := node.Labels[ControlPlaneLabel]; ok {
		return ControlPlaneRole
	}
	return WorkerRole
}

// NodesOfAPIServers returns the addresses of the API servers, "host:port", by the name of their node. They come
// from the annotation that kubeadm sets on their static pods. Unlike APIServers, it also lists API servers that ended.
func NodesOfAPIServers(ctx context.Context, api kubernetes.Interface) (map[string]string, error) {
	pods, err := api.CoreV1().Pods(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{LabelSelector: "component=kube-apiserver,tier=control-plane"})
	if err != nil {
		return nil, fmt.Errorf("listing the API servers: %w", err)
	}
	addresses := map[string]string{}
	for _, p := range pods.Items {
		addresses[p.Spec.NodeName] = p.Annotations[APIServerAnnotation]
	}
	return addresses, nil
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

// ClassesWithoutHandler returns the runtime classes whose handler none of the nodes has, as "NAME (handler HANDLER)": no node can start
// their pods. While a node does not report its handlers, there are none.
func (c *Client) ClassesWithoutHandler(ctx context.Context, nodes []NodeState) (list []string, err error) {
	classes, err := c.API.NodeV1().RuntimeClasses().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing runtime classes: %w", err)
	}
	for _, class := range classes.Items {
		if !slices.ContainsFunc(nodes, func(n NodeState) bool { return len(n.Handlers) == 0 || slices.Contains(n.Handlers, class.Handler) }) {
			list = append(list, fmt.Sprintf("%s (handler %s)", class.Name, class.Handler))
		}
	}
	return list, nil
}

// stateOf returns the state of a node for people.
func stateOf(node *corev1.Node) NodeState {
	state := NodeState{
		Name: node.Name, Role: roleOf(node), Version: node.Status.NodeInfo.KubeletVersion,
		UID: node.UID, KubeletPort: node.Status.DaemonEndpoints.KubeletEndpoint.Port,
	}
	state.Ready, state.Reason = NodeReady(node)
	state.Follows = FollowsOf(node)
	state.Labels, state.Unschedulable = node.Labels, node.Spec.Unschedulable
	for _, t := range node.Spec.Taints {
		state.Taints = append(state.Taints, t.ToString())
	}
	for _, h := range node.Status.RuntimeHandlers {
		state.Handlers = append(state.Handlers, h.Name)
	}
	for _, a := range node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			state.Addresses = append(state.Addresses, a.Address)
		}
	}
	return state
}

// Behind lists the other control planes, by name, that have not followed the last reconfiguration of the cluster.
func Behind(last config.Reconfiguration, nodes []NodeState, own string) (names []string) {
	for _, n := range nodes {
		if n.Name != own && n.Role == ControlPlaneRole && !last.Follows(n.Follows.Reconfiguration, true) {
			names = append(names, n.Name)
		}
	}
	return names
}
