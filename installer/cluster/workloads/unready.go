package workloads

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"k8s.io/client-go/kubernetes"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"airlift/installer/cluster"
)

// systemNamespaces have the pods of the cluster's components.
var systemNamespaces = []string{metav1.NamespaceSystem, "kube-flannel"}

// A Healthy is what Unready requires of nodes.
type Healthy struct {
	Nodes   []string // empty: all nodes
	Version string   // of their kubelets; "": any
	Pods    bool     // the pods of kube-system and kube-flannel on them are ready
}

// Unready returns why nodes are not healthy, in the order of the nodes: "w1: not Ready: …". It makes one attempt.
func (want Healthy) Unready(ctx context.Context, api kubernetes.Interface) (list []string, err error) {
	nodes, err := api.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	names := want.Nodes
	byName := map[string]*corev1.Node{}
	for i, n := range nodes.Items {
		byName[n.Name] = &nodes.Items[i]
		if len(want.Nodes) == 0 {
			names = append(names, n.Name)
		}
	}
	for _, name := range names {
		if why := want.lack(byName[name]); why != "" {
			list = append(list, name+": "+why)
		}
	}
	if !want.Pods {
		return list, nil
	}
	if len(want.Nodes) == 0 {
		names = append(names, "") // of a pod that is not scheduled
	}
	pods, err := unreadyPods(ctx, api, names)
	return append(list, pods...), err
}

// lack returns why a node is not healthy. nil is a node that does not exist.
func (want Healthy) lack(n *corev1.Node) string {
	if n == nil {
		return "the node does not exist"
	}
	if ready, why := cluster.NodeReady(n); !ready {
		return "not Ready: " + why
	}
	if is := n.Status.NodeInfo.KubeletVersion; want.Version != "" && is != want.Version {
		return fmt.Sprintf("its kubelet is %s, not %s", is, want.Version)
	}
	return ""
}

func unreadyPods(ctx context.Context, api kubernetes.Interface, nodes []string) (list []string, err error) {
	for _, namespace := range systemNamespaces {
		pods, err := api.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("listing the pods of %s: %w", namespace, err)
		}
		for _, p := range pods.Items {
			if !slices.Contains(nodes, p.Spec.NodeName) || IsReplaced(&p) {
				continue
			}
			if ready, why := PodReady(&p); !ready {
				list = append(list, fmt.Sprintf("%s: pod %s: %s", cmp.Or(p.Spec.NodeName, "no node"), cluster.Qualified(namespace, p.Name), why))
			}
		}
	}
	return list, nil
}
