package facts

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/client-go/kubernetes"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"airlift/installer/cluster"
	"airlift/installer/cluster/wait"
)

// A Workload has the facts about a Deployment or a DaemonSet that an upgrade needs.
type Workload struct {
	Images   []string // of its containers
	Replicas *int32   // of a Deployment
}

// Deployment returns a Deployment; nil if it does not exist.
func Deployment(ctx context.Context, api kubernetes.Interface, namespace, name string) (*Workload, error) {
	var found *appsv1.Deployment
	err := wait.Retry(ctx, func() (err error) {
		found, err = api.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
		return err
	})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading Deployment %s/%s: %w", namespace, name, err)
	}
	return &Workload{imagesOf(found.Spec.Template.Spec), found.Spec.Replicas}, nil
}

// DaemonSet returns a DaemonSet; nil if it does not exist.
func DaemonSet(ctx context.Context, api kubernetes.Interface, namespace, name string) (*Workload, error) {
	var found *appsv1.DaemonSet
	err := wait.Retry(ctx, func() (err error) {
		found, err = api.AppsV1().DaemonSets(namespace).Get(ctx, name, metav1.GetOptions{})
		return err
	})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading DaemonSet %s/%s: %w", namespace, name, err)
	}
	return &Workload{Images: imagesOf(found.Spec.Template.Spec)}, nil
}

func imagesOf(pod corev1.PodSpec) (images []string) {
	for _, k := range slices.Concat(pod.InitContainers, pod.Containers) {
		images = append(images, k.Image)
	}
	return images
}

// An UpgradeNode describes a node for an upgrade.
type UpgradeNode struct {
	Name           string
	KubeletVersion string
	InternalIPs    []string
	Unschedulable  bool
	Ready          bool
	ControlPlane   bool
	// Open is set if pods without tolerations can be scheduled on it.
	Open   bool
	Taints []corev1.Taint
	Images []string // only the largest images
	// Reconfiguration is the number of the reconfiguration that it follows, 0 for none.
	Reconfiguration int
}

// UpgradeNodes lists all nodes. A kubelet's permissions may not suffice.
func UpgradeNodes(ctx context.Context, api kubernetes.Interface) (nodes []UpgradeNode, err error) {
	var list *corev1.NodeList
	err = wait.Retry(ctx, func() (err error) {
		list, err = api.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listing the nodes: %w", err)
	}
	for _, n := range list.Items {
		nodes = append(nodes, upgradeNode(&n))
	}
	return nodes, nil
}

// ReadUpgradeNode returns one node.
func ReadUpgradeNode(ctx context.Context, api kubernetes.Interface, name string) (node UpgradeNode, err error) {
	found, err := cluster.GetNode(ctx, api, name)
	if err != nil {
		return UpgradeNode{}, err
	}
	return upgradeNode(found), nil
}

func upgradeNode(n *corev1.Node) UpgradeNode {
	ready, _ := cluster.NodeReady(n)
	_, controlPlane := n.Labels[cluster.ControlPlaneLabel]
	node := UpgradeNode{
		Name: n.Name, KubeletVersion: n.Status.NodeInfo.KubeletVersion, Unschedulable: n.Spec.Unschedulable,
		Ready: ready, ControlPlane: controlPlane, Taints: n.Spec.Taints, Reconfiguration: cluster.ReconfigurationOf(n),
	}
	node.Open = ready && !n.Spec.Unschedulable && !slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Effect != corev1.TaintEffectPreferNoSchedule })
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			node.InternalIPs = append(node.InternalIPs, a.Address)
		}
	}
	for _, i := range n.Status.Images {
		node.Images = append(node.Images, i.Names...)
	}
	return node
}

// HasImage reports whether a node lists an image. A node lists only its largest images.
func (n UpgradeNode) HasImage(reference string) bool {
	return slices.ContainsFunc(n.Images, func(name string) bool { return name == reference || strings.HasPrefix(name, reference+"@") })
}

// APIServerImages returns the image of each control plane's API server, by node.
func APIServerImages(ctx context.Context, api kubernetes.Interface) (map[string]string, error) {
	var list *corev1.PodList
	err := wait.Retry(ctx, func() (err error) {
		list, err = api.CoreV1().Pods(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{LabelSelector: "component=kube-apiserver,tier=control-plane"})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listing the API servers: %w", err)
	}
	images := map[string]string{}
	for _, p := range list.Items {
		for _, k := range p.Spec.Containers {
			if k.Name == "kube-apiserver" {
				images[p.Spec.NodeName] = k.Image
			}
		}
	}
	return images, nil
}
