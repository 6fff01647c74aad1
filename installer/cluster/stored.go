package cluster

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"

	"airlift/installer/config"
	"airlift/internal/fault"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// componentHash is the annotation with which kubeadm marks a component's configuration as
// unchanged defaults.
const componentHash = "kubeadm.kubernetes.io/component-config.hash"

// Stored has the contents that an upgrade needs from the ConfigMaps of kubeadm and Airlift.
type Stored struct {
	*FetchedConfig
	// DefaultKubelet and DefaultProxy report whether the kubelet's and kube-proxy's
	// configuration are unchanged defaults, which an upgrade replaces.
	DefaultKubelet, DefaultProxy bool
	// ProxyServer is the URL at which kube-proxy reaches the API server; "" without kube-proxy.
	ProxyServer string
	// FlannelServer is the URL at which flannel's pods reach the API server; "" without flannel, or if the endpoint of the
	// cluster was never changed.
	FlannelServer string
}

// FetchStored reads the stored configuration of the cluster. A kubelet's permissions suffice
// for all but DefaultProxy, ProxyServer and FlannelServer, which only add-ons need.
func (c *Client) FetchStored(ctx context.Context) (*Stored, error) {
	fetched, err := c.FetchConfig(ctx)
	if err != nil {
		return nil, err
	}
	s := &Stored{FetchedConfig: fetched}
	kubelet, err := ConfigMap(ctx, c.API, metav1.NamespaceSystem, kubeletConfigMap)
	if err != nil {
		return nil, err
	}
	s.DefaultKubelet = UnchangedDefaults(kubelet)
	proxy, err := ConfigMap(ctx, c.API, metav1.NamespaceSystem, kubeProxyConfigMap)
	if err != nil {
		return nil, err
	}
	if proxy != nil {
		s.DefaultProxy = UnchangedDefaults(proxy)
		if kubeconfig, err := clientcmd.Load([]byte(proxy.Data["kubeconfig.conf"])); err == nil {
			for _, one := range kubeconfig.Clusters {
				s.ProxyServer = one.Server
			}
		}
	}
	if fetched.Cluster.Endpoint.Change != nil {
		s.FlannelServer, err = c.flannelServer(ctx)
	}
	return s, err
}

// UnchangedDefaults reports whether the data of a ConfigMap has the checksum in its annotation: kubeadm
// wrote its defaults, and nobody changed them.
func UnchangedDefaults(m *corev1.ConfigMap) bool {
	if m == nil || m.Annotations[componentHash] == "" {
		return false
	}
	return m.Annotations[componentHash] == dataHash(m)
}

// dataHash is the checksum of a ConfigMap's values in the order of their keys, as kubeadm computes it.
func dataHash(m *corev1.ConfigMap) string {
	sum := sha256.New()
	for _, key := range slices.Sorted(maps.Keys(m.Data)) {
		sum.Write([]byte(m.Data[key]))
	}
	return fmt.Sprintf("sha256:%x", sum.Sum(nil))
}

// Corefile returns CoreDNS's Corefile; "" if the cluster has none.
func Corefile(ctx context.Context, api kubernetes.Interface) (string, error) {
	m, err := ConfigMap(ctx, api, metav1.NamespaceSystem, "coredns")
	if err != nil || m == nil {
		return "", err
	}
	return m.Data["Corefile"], nil
}

// StoredDocuments returns the documents of kubeadm that the cluster stores, as one file: the ClusterConfiguration, and the
// configuration of the kubelet and of kube-proxy unless they are unchanged defaults.
func StoredDocuments(ctx context.Context, api kubernetes.Interface) ([]byte, error) {
	var out bytes.Buffer
	for _, name := range config.ClusterKinds {
		kind := config.Kinds[name]
		m, err := ConfigMap(ctx, api, metav1.NamespaceSystem, kind.ConfigMap)
		if err != nil {
			return nil, err
		}
		switch {
		case m == nil && kind.ConfigMap == kubeadmConfigMap:
			return nil, fault.New(fault.Failure, "the cluster has no ConfigMap %s/%s", metav1.NamespaceSystem, kind.ConfigMap).Hint("use the kubeconfig of an administrator: --kubeconfig FILE")
		case m == nil || UnchangedDefaults(m):
			continue
		}
		if out.Len() > 0 {
			out.WriteString("---\n")
		}
		out.WriteString(strings.TrimRight(m.Data[kind.Key], "\n") + "\n")
	}
	return out.Bytes(), nil
}
