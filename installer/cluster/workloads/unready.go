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
	// Broken are pods that need not be ready, because they were not before: what Broken returned.
	Broken map[string]int
}

// A Lack is why a node is not healthy.
type Lack struct{ Node, Why string }

func (l Lack) String() string { return cmp.Or(l.Node, "no node") + ": " + l.Why }

// Unready returns why nodes are not healthy, in the order of the nodes: "w1: not Ready: …". It makes one attempt.
func (want Healthy) Unready(ctx context.Context, api kubernetes.Interface) (list []Lack, err error) {
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
			list = append(list, Lack{name, why})
		}
	}
	if !want.Pods {
		return list, nil
	}
	if len(want.Nodes) == 0 {
		names = append(names, "") // of a pod that is not scheduled
	}
	pods, err := unreadyPods(ctx, api)
	broken := countBroken(pods)
	for _, p := range pods {
		if slices.Contains(names, p.node) && (p.workload == "" || broken[p.workload] > want.Broken[p.workload]) {
			list = append(list, Lack{p.node, p.text})
		}
	}
	return list, err
}

// Broken returns how many pods of the site are not ready in the namespaces that Unready looks at, by the name of their workload. A
// pod that stays on its node has the node in that name. The pods of Kubernetes and the CNI are not counted: they have to be ready.
func Broken(ctx context.Context, api kubernetes.Interface) (map[string]int, error) {
	pods, err := unreadyPods(ctx, api)
	return countBroken(pods), err
}

func countBroken(pods []unreadyPod) map[string]int {
	broken := map[string]int{}
	for _, p := range pods {
		if p.workload != "" {
			broken[p.workload]++
		}
	}
	return broken
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

// An unreadyPod is a pod that is not ready, and why. workload is "" for a pod of Kubernetes or the CNI.
type unreadyPod struct{ node, workload, text string }

func unreadyPods(ctx context.Context, api kubernetes.Interface) (list []unreadyPod, err error) {
	for _, namespace := range systemNamespaces {
		pods, err := api.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("listing the pods of %s: %w", namespace, err)
		}
		for _, p := range pods.Items {
			if IsReplaced(&p) {
				continue
			}
			if ready, why := PodReady(&p); !ready {
				list = append(list, unreadyPod{p.Spec.NodeName, workloadOf(&p), fmt.Sprintf("pod %s: %s", cluster.Qualified(namespace, p.Name), why)})
			}
		}
	}
	return list, nil
}

// components are the labels of the pods in kube-system that an upgrade of Kubernetes replaces.
var components = []struct{ label, value string }{{"tier", "control-plane"}, {"k8s-app", "kube-proxy"}, {"k8s-app", "kube-dns"}}

// workloadOf returns the name of what creates a pod of the site again, and "" for others. A pod of a DaemonSet, a static pod and
// one without an owner stay on their node.
func workloadOf(p *corev1.Pod) string {
	labelled := func(c struct{ label, value string }) bool { return p.Labels[c.label] == c.value }
	if p.Namespace != metav1.NamespaceSystem || slices.ContainsFunc(components, labelled) {
		return ""
	}
	owner := metav1.GetControllerOf(p)
	switch {
	case owner == nil || owner.Kind == "Node":
		return fmt.Sprintf("%s/Pod/%s on %s", p.Namespace, p.Name, p.Spec.NodeName)
	case owner.Kind == "DaemonSet":
		return fmt.Sprintf("%s/DaemonSet/%s on %s", p.Namespace, owner.Name, p.Spec.NodeName)
	}
	return fmt.Sprintf("%s/%s/%s", p.Namespace, owner.Kind, owner.Name)
}
