package inventory

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/client-go/kubernetes"

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
	found, err := wait.Get(ctx, api.AppsV1().Deployments(namespace).Get, name)
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
	found, err := wait.Get(ctx, api.AppsV1().DaemonSets(namespace).Get, name)
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

// Nodes lists all nodes. A kubelet's permissions may not suffice.
func Nodes(ctx context.Context, api kubernetes.Interface) (nodes []Node, err error) {
	list, err := wait.List(ctx, api.CoreV1().Nodes().List, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing the nodes: %w", err)
	}
	for _, n := range list.Items {
		nodes = append(nodes, nodeFacts(&n))
	}
	return nodes, nil
}

// ReadNode returns one node.
func ReadNode(ctx context.Context, api kubernetes.Interface, name string) (node Node, err error) {
	found, err := cluster.GetNode(ctx, api, name)
	if err != nil {
		return Node{}, err
	}
	return nodeFacts(found), nil
}

// HasImage reports whether a node lists an image. A node lists only its largest images.
func (n Node) HasImage(reference string) bool {
	return slices.ContainsFunc(n.Images, func(name string) bool { return name == reference || strings.HasPrefix(name, reference+"@") })
}

// APIServerImages returns the image of each control plane's API server, by node.
func APIServerImages(ctx context.Context, api kubernetes.Interface) (map[string]string, error) {
	list, err := wait.List(ctx, api.CoreV1().Pods(metav1.NamespaceSystem).List, metav1.ListOptions{LabelSelector: "component=kube-apiserver,tier=control-plane"})
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
