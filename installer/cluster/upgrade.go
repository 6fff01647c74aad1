package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
)

// componentHash is the annotation with which kubeadm marks a component's configuration as
// unchanged defaults.
const componentHash = "kubeadm.kubernetes.io/component-config.hash"

// Stored is what an upgrade needs to know of the ConfigMaps that kubeadm and Airlift write.
type Stored struct {
	*FetchedConfig
	// DefaultKubelet and DefaultProxy report whether the kubelet's and kube-proxy's
	// configuration are unchanged defaults, which an upgrade replaces.
	DefaultKubelet, DefaultProxy bool
	// ProxyServer is the URL at which kube-proxy reaches the API server; "" without kube-proxy.
	ProxyServer string
}

// FetchStored reads the stored configuration of the cluster. A kubelet's permissions suffice
// for all but DefaultProxy and ProxyServer, which only add-ons need.
func (c Upgrades) FetchStored(ctx context.Context) (*Stored, error) {
	fetched, err := c.client.FetchConfig(ctx)
	if err != nil {
		return nil, err
	}
	s := &Stored{FetchedConfig: fetched}
	kubelet, err := c.client.configMap(ctx, systemNamespace, kubeletConfigMap)
	if err != nil {
		return nil, err
	}
	s.DefaultKubelet = unchangedDefaults(kubelet)
	proxy, err := c.client.configMap(ctx, systemNamespace, kubeProxyConfigMap)
	if err != nil {
		return nil, err
	}
	if proxy != nil {
		s.DefaultProxy = unchangedDefaults(proxy)
		if kubeconfig, err := clientcmd.Load([]byte(proxy.Data["kubeconfig.conf"])); err == nil {
			for _, one := range kubeconfig.Clusters {
				s.ProxyServer = one.Server
			}
		}
	}
	return s, nil
}

// configMap reads a ConfigMap; nil if it does not exist or must not be read.
func (c *Client) configMap(ctx context.Context, namespace, name string) (found *corev1.ConfigMap, err error) {
	err = persist(ctx, func() (err error) {
		found, err = c.api.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
		return err
	})
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading ConfigMap %s/%s: %w", namespace, name, err)
	}
	return found, nil
}

// unchangedDefaults reports whether the data of a ConfigMap has the checksum in its annotation.
func unchangedDefaults(m *corev1.ConfigMap) bool {
	if m == nil || m.Annotations[componentHash] == "" {
		return false
	}
	var keys []string
	for key := range m.Data {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	sum := sha256.New()
	for _, key := range keys {
		sum.Write([]byte(m.Data[key]))
	}
	return m.Annotations[componentHash] == fmt.Sprintf("sha256:%x", sum.Sum(nil))
}

// Corefile returns CoreDNS's Corefile; "" if the cluster has none.
func (c Upgrades) Corefile(ctx context.Context) (string, error) {
	m, err := c.client.configMap(ctx, systemNamespace, "coredns")
	if err != nil || m == nil {
		return "", err
	}
	return m.Data["Corefile"], nil
}

// A Workload is what an upgrade needs to know of a Deployment or a DaemonSet.
type Workload struct {
	Images   []string // of its containers
	Replicas *int32   // of a Deployment
}

// Deployment returns a Deployment; nil if it does not exist.
func (c Upgrades) Deployment(ctx context.Context, namespace, name string) (*Workload, error) {
	var found *appsv1.Deployment
	err := persist(ctx, func() (err error) {
		found, err = c.client.api.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
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
func (c Upgrades) DaemonSet(ctx context.Context, namespace, name string) (*Workload, error) {
	var found *appsv1.DaemonSet
	err := persist(ctx, func() (err error) {
		found, err = c.client.api.AppsV1().DaemonSets(namespace).Get(ctx, name, metav1.GetOptions{})
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
	Images []string // the largest ones
}

// UpgradeNodes lists all nodes. A kubelet's permissions may not suffice.
func (c Upgrades) UpgradeNodes(ctx context.Context) (nodes []UpgradeNode, err error) {
	var list *corev1.NodeList
	err = persist(ctx, func() (err error) {
		list, err = c.client.api.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
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

// UpgradeNode returns one node.
func (c Upgrades) UpgradeNode(ctx context.Context, name string) (node UpgradeNode, err error) {
	var found *corev1.Node
	err = persist(ctx, func() (err error) {
		found, err = c.client.api.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		return err
	})
	if err != nil {
		return UpgradeNode{}, fmt.Errorf("reading node %q: %w", name, err)
	}
	return upgradeNode(found), nil
}

func upgradeNode(n *corev1.Node) UpgradeNode {
	ready, _ := nodeReady(n)
	_, controlPlane := n.Labels[controlPlaneLabel]
	node := UpgradeNode{
		Name: n.Name, KubeletVersion: n.Status.NodeInfo.KubeletVersion, Unschedulable: n.Spec.Unschedulable,
		Ready: ready, ControlPlane: controlPlane, Taints: n.Spec.Taints,
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

// HasImage reports whether a node lists an image. It lists only its largest ones.
func (n UpgradeNode) HasImage(reference string) bool {
	return slices.ContainsFunc(n.Images, func(name string) bool { return name == reference || strings.HasPrefix(name, reference+"@") })
}

// APIServerImages returns the image of each control plane's API server, by node.
func (c Upgrades) APIServerImages(ctx context.Context) (map[string]string, error) {
	var list *corev1.PodList
	err := persist(ctx, func() (err error) {
		list, err = c.client.api.CoreV1().Pods(systemNamespace).List(ctx, metav1.ListOptions{LabelSelector: "component=kube-apiserver,tier=control-plane"})
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

// An ObjectName names an object of a namespace.
type ObjectName struct {
	APIVersion, Kind, Namespace, Name string
}

// ReadObject reads an object without what the server adds to it; nil if it does not exist.
func (c Upgrades) ReadObject(ctx context.Context, o ObjectName) (json.RawMessage, error) {
	want := &unstructured.Unstructured{}
	want.SetGroupVersionKind(schema.FromAPIVersionAndKind(o.APIVersion, o.Kind))
	want.SetNamespace(o.Namespace)
	want.SetName(o.Name)
	var found *unstructured.Unstructured
	err := persist(ctx, func() (err error) {
		found, err = c.client.resource(want).Get(ctx, o.Name, metav1.GetOptions{})
		return err
	})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s %s/%s: %w", o.Kind, o.Namespace, o.Name, err)
	}
	delete(found.Object, "status")
	for _, field := range []string{"resourceVersion", "uid", "creationTimestamp", "generation", "managedFields", "selfLink"} {
		unstructured.RemoveNestedField(found.Object, "metadata", field)
	}
	return found.MarshalJSON()
}

// ReplaceObject makes an object what ReadObject has read, and reports whether it differed.
func (c Upgrades) ReplaceObject(ctx context.Context, data json.RawMessage) (changed bool, err error) {
	want := &unstructured.Unstructured{}
	if err := want.UnmarshalJSON(data); err != nil {
		return false, err
	}
	name := ObjectName{want.GetAPIVersion(), want.GetKind(), want.GetNamespace(), want.GetName()}
	now, err := c.ReadObject(ctx, name)
	if err != nil || string(now) == string(data) {
		return false, err
	}
	err = persist(ctx, func() error {
		if now == nil {
			_, err := c.client.resource(want).Create(ctx, want, metav1.CreateOptions{})
			return err
		}
		_, err := c.client.resource(want).Update(ctx, want, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return false, fmt.Errorf("replacing %s: %w", describe(want), err)
	}
	return true, nil
}

// SetUnschedulable cordons or uncordons a node. The kubelet's permissions suffice.
func (c Upgrades) SetUnschedulable(ctx context.Context, node string, yes bool) error {
	patch := fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, yes)
	err := persist(ctx, func() error {
		_, err := c.client.api.CoreV1().Nodes().Patch(ctx, node, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("changing whether pods can be scheduled on node %q: %w", node, err)
	}
	return nil
}
