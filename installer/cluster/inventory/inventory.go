package inventory

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/client-go/kubernetes"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"airlift/installer/cluster"
	"airlift/installer/cluster/wait"
	"airlift/installer/cluster/workloads"
)

// Cluster has the facts that the checks before an upgrade read from the cluster. Lists that this
// client may not read are empty, and Unreadable names them.
type Cluster struct {
	// ServerVersion is the version of the API server that answered.
	ServerVersion string `json:"serverVersion"`
	Nodes         []Node `json:"nodes"`
	// Components are the containers of the control plane and of the cluster's add-ons.
	Components []Component `json:"components"`
	// Pods are the pods that a drain of their node would evict or leave.
	Pods       []Pod    `json:"-"`
	Budgets    []Budget `json:"-"`
	Features   Features `json:"-"`
	Unreadable []string `json:"unreadable,omitempty"`
}

// A Node describes a node.
type Node struct {
	Name          string `json:"name"`
	ControlPlane  bool   `json:"controlPlane"`
	Ready         bool   `json:"ready"`
	Reason        string `json:"reason,omitempty"` // why it is not Ready
	Unschedulable bool   `json:"unschedulable,omitempty"`
	// Open is set if pods without tolerations can be scheduled on it.
	Open             bool           `json:"-"`
	KubeletVersion   string         `json:"kubelet"`
	Kernel           string         `json:"kernel"`
	OS               string         `json:"os"`
	Architecture     string         `json:"architecture"`
	ContainerRuntime string         `json:"containerRuntime"` // "containerd://2.4.2"
	InternalIPs      []string       `json:"-"`
	Taints           []corev1.Taint `json:"-"`
	Images           []string       `json:"-"` // only the largest images
	// Reconfiguration is the number of the reconfiguration that it follows, 0 for none.
	Reconfiguration int `json:"-"`
}

// Component describe a container of the control plane or of an add-on.
type Component struct {
	Name  string `json:"name"`           // "kube-apiserver", "etcd", "coredns"
	Node  string `json:"node,omitempty"` // of a static pod
	Image string `json:"image"`
}

// Pod describe what a drain does with a pod.
type Pod struct {
	Name string `json:"name"` // namespace/name
	Node string `json:"node"`
	// Bare is set if no controller creates the pod again.
	Bare bool `json:"bare,omitempty"`
	// Workload is what creates the pod again, namespace/name, and Serves is set unless that is a Job.
	Workload string `json:"-"`
	Serves   bool   `json:"-"`
	// EmptyDirs are the pod's volumes that are lost with it.
	EmptyDirs []string `json:"emptyDirs,omitempty"`
}

// A Budget is a PodDisruptionBudget that allows no eviction now.
type Budget struct {
	Name    string   `json:"name"` // namespace/name
	Pods    []string `json:"pods"` // the pods that a drain must evict, as namespace/name
	Nodes   []string `json:"nodes"`
	Healthy int32    `json:"healthy"`
	Desired int32    `json:"desired"`
	// Never is set if the budget allows no disruption at any number of healthy pods.
	Never bool `json:"never,omitempty"`
}

// Read reads the facts. It changes nothing.
func Read(ctx context.Context, api kubernetes.Interface) (*Cluster, error) {
	f := &Cluster{Features: Features{}}
	err := wait.Retry(ctx, func() error {
		v, err := api.Discovery().ServerVersion()
		if err == nil {
			f.ServerVersion = v.GitVersion
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the API server's version: %w", err)
	}
	var nodes *corev1.NodeList
	if err := f.read(ctx, "nodes", func() (err error) {
		nodes, err = api.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		return err
	}); err != nil {
		return nil, err
	}
	var pods *corev1.PodList
	if err := f.read(ctx, "pods", func() (err error) {
		pods, err = api.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
		return err
	}); err != nil {
		return nil, err
	}
	var budgets *policyv1.PodDisruptionBudgetList
	if err := f.read(ctx, "poddisruptionbudgets", func() (err error) {
		budgets, err = api.PolicyV1().PodDisruptionBudgets(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
		return err
	}); err != nil {
		return nil, err
	}
	if nodes != nil {
		for _, n := range nodes.Items {
			f.Nodes = append(f.Nodes, nodeFacts(&n))
		}
	}
	var evicted []corev1.Pod
	if pods != nil {
		f.Components = componentsOf(pods.Items)
		for _, p := range pods.Items {
			_ = f.Features.addObject(&p) // it has no errors
			if p.Spec.NodeName != "" && workloads.Evicts(&p) {
				evicted = append(evicted, p)
				f.Pods = append(f.Pods, podFacts(&p))
			}
		}
	}
	if budgets != nil {
		f.Budgets = blocking(budgets.Items, evicted)
	}
	return f, f.readFeatures(ctx, api)
}

// Drains returns what a drain of nodes meets: the budgets that allow no eviction now and match pods that it must evict, and those pods.
func Drains(ctx context.Context, api kubernetes.Interface) (budgets []Budget, evicted []Pod, err error) {
	pods, err := api.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, nil, fmt.Errorf("listing the pods: %w", err)
	}
	list, err := api.PolicyV1().PodDisruptionBudgets(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, nil, fmt.Errorf("listing the PodDisruptionBudgets: %w", err)
	}
	items := slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return p.Spec.NodeName == "" || !workloads.Evicts(&p) })
	for i := range items {
		evicted = append(evicted, podFacts(&items[i]))
	}
	return blocking(list.Items, items), evicted, nil
}

func blocking(budgets []policyv1.PodDisruptionBudget, evicted []corev1.Pod) (list []Budget) {
	for _, b := range budgets {
		if blocked, ok := budgetFacts(&b, evicted); ok {
			list = append(list, blocked)
		}
	}
	return list
}

// read lists something. A list that this client may not read stays empty.
func (f *Cluster) read(ctx context.Context, what string, list func() error) error {
	err := wait.Retry(ctx, list)
	if apierrors.IsForbidden(err) {
		f.Unreadable = append(f.Unreadable, what)
		return nil
	}
	if err != nil {
		return fmt.Errorf("listing the %s: %w", what, err)
	}
	return nil
}

func nodeFacts(n *corev1.Node) Node {
	ready, reason := cluster.NodeReady(n)
	_, controlPlane := n.Labels[cluster.ControlPlaneLabel]
	i := n.Status.NodeInfo
	f := Node{
		Name: n.Name, ControlPlane: controlPlane, Ready: ready, Reason: reason, Unschedulable: n.Spec.Unschedulable,
		KubeletVersion: i.KubeletVersion, Kernel: i.KernelVersion, OS: i.OSImage, Architecture: i.Architecture, ContainerRuntime: i.ContainerRuntimeVersion,
		Taints: n.Spec.Taints, Reconfiguration: cluster.FollowsOf(n).Reconfiguration,
	}
	f.Open = ready && !n.Spec.Unschedulable && !slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Effect != corev1.TaintEffectPreferNoSchedule })
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			f.InternalIPs = append(f.InternalIPs, a.Address)
		}
	}
	for _, i := range n.Status.Images {
		f.Images = append(f.Images, i.Names...)
	}
	return f
}

// addOns are the labels of the pods of add-ons, by name.
var addOns = map[string]map[string]string{
	"coredns":    {"k8s-app": "kube-dns"},
	"kube-proxy": {"k8s-app": "kube-proxy"},
	"flannel":    {"app": "flannel"},
}

// componentsOf finds the control plane's static pods and the add-ons. Each image of an add-on
// is listed once.
func componentsOf(pods []corev1.Pod) (list []Component) {
	for _, p := range pods {
		if p.Labels["tier"] == "control-plane" && p.Namespace == metav1.NamespaceSystem {
			for _, k := range p.Spec.Containers {
				if k.Name == p.Labels["component"] {
					list = append(list, Component{k.Name, p.Spec.NodeName, k.Image})
				}
			}
			continue
		}
		for name, want := range addOns {
			if p.Namespace != metav1.NamespaceSystem && p.Namespace != "kube-flannel" || !labels.SelectorFromSet(want).Matches(labels.Set(p.Labels)) || len(p.Spec.Containers) == 0 {
				continue
			}
			one := Component{Name: name, Image: p.Spec.Containers[0].Image}
			if !slices.Contains(list, one) {
				list = append(list, one)
			}
		}
	}
	slices.SortFunc(list, func(a, b Component) int {
		return strings.Compare(a.Name+" "+a.Node+" "+a.Image, b.Name+" "+b.Node+" "+b.Image)
	})
	return list
}

func podFacts(p *corev1.Pod) Pod {
	owner := metav1.GetControllerOf(p)
	f := Pod{Name: p.Namespace + "/" + p.Name, Node: p.Spec.NodeName, Bare: owner == nil}
	if owner != nil { // a Deployment has a ReplicaSet for each version
		f.Workload, f.Serves = p.Namespace+"/"+strings.TrimSuffix(owner.Name, "-"+p.Labels[appsv1.DefaultDeploymentUniqueLabelKey]), owner.Kind != "Job"
	}
	for _, v := range p.Spec.Volumes {
		if v.EmptyDir != nil {
			f.EmptyDirs = append(f.EmptyDirs, v.Name)
		}
	}
	return f
}

// budgetFacts reports a budget that matches pods that a drain evicts, and allows no eviction.
func budgetFacts(b *policyv1.PodDisruptionBudget, evicted []corev1.Pod) (Budget, bool) {
	selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
	if err != nil || b.Status.DisruptionsAllowed > 0 {
		return Budget{}, false
	}
	f := Budget{
		Name: b.Namespace + "/" + b.Name, Healthy: b.Status.CurrentHealthy, Desired: b.Status.DesiredHealthy,
		Never: b.Status.ExpectedPods > 0 && b.Status.DesiredHealthy >= b.Status.ExpectedPods,
	}
	for _, p := range evicted {
		if p.Namespace == b.Namespace && selector.Matches(labels.Set(p.Labels)) {
			f.Pods = append(f.Pods, p.Namespace+"/"+p.Name)
			if !slices.Contains(f.Nodes, p.Spec.NodeName) {
				f.Nodes = append(f.Nodes, p.Spec.NodeName)
			}
		}
	}
	slices.Sort(f.Nodes)
	return f, len(f.Pods) > 0
}

// WorkersAreNext reports whether all control planes have a version, and a worker does not. A worker may
// not check the kube-proxies before its drain. A control plane does.
func WorkersAreNext(nodes []Node, self, version string) bool {
	workers := false
	for _, n := range nodes {
		if n.Name == self || n.KubeletVersion == version {
			continue
		}
		if n.ControlPlane {
			return false
		}
		workers = true
	}
	return workers
}
