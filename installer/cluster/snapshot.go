package cluster

import (
	"bytes"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"airlift/installer/cluster/wait"
	"airlift/installer/config"
	"airlift/internal/fault"
)

// A Snapshot has values of the API server from etcd, for use when no API server answers. Its keys
// begin with Prefix, the API server's --etcd-prefix.
type Snapshot struct {
	Prefix string // "/registry"
	Values map[string][]byte
}

func (s Snapshot) configMap(name string) string {
	return s.Prefix + "/configmaps/" + metav1.NamespaceSystem + "/" + name
}

func (s Snapshot) flannel() string { return s.Prefix + "/daemonsets/kube-flannel/kube-flannel-ds" }

// Keys lists the keys that Config and HasFlannel read.
func (s Snapshot) Keys() []string {
	keys := []string{s.flannel()}
	for _, name := range []string{kubeadmConfigMap, kubeletConfigMap, kubeProxyConfigMap, config.EndpointConfigMap, config.RegistryConfigMap, config.ReconfigurationConfigMap} {
		keys = append(keys, s.configMap(name))
	}
	return keys
}

// HasFlannel reports whether the cluster has a pod network by this project.
func (s Snapshot) HasFlannel() bool { return s.Values[s.flannel()] != nil }

// Config reads the configuration as FetchConfig does.
func (s Snapshot) Config() (*FetchedConfig, error) {
	return configReader{get: s.read, hint: "use an older backup: this one cannot be restored"}.config()
}

// UIDKey is the key that UID reads.
func (s Snapshot) UIDKey() string { return s.Prefix + "/namespaces/" + metav1.NamespaceSystem }

// UID returns what ClusterUID returns, or "" if it cannot be read, as when it is encrypted.
func (s Snapshot) UID() string {
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(s.Values[s.UIDKey()], nil, nil)
	namespace, ok := object.(*corev1.Namespace)
	if err != nil || !ok {
		return ""
	}
	return string(namespace.UID)
}

// ClusterUID returns the UID of the namespace kube-system, which identifies a cluster: it stays the same
// when CAs are rotated or a backup is restored.
func (c *Client) ClusterUID(ctx context.Context) (string, error) {
	namespace, err := wait.Get(ctx, c.API.CoreV1().Namespaces().Get, metav1.NamespaceSystem)
	if err != nil {
		return "", fmt.Errorf("reading the namespace %s: %w", metav1.NamespaceSystem, err)
	}
	return string(namespace.UID), nil
}

// encrypted is the beginning of a value that the API server encrypts
// (k8s.io/apiserver/pkg/storage/value/encrypt).
var encrypted = []byte("k8s:enc:")

func (s Snapshot) read(name string) (*corev1.ConfigMap, error) {
	value := s.Values[s.configMap(name)]
	if value == nil {
		return nil, apierrors.NewNotFound(corev1.Resource("configmaps"), name)
	}
	if bytes.HasPrefix(value, encrypted) {
		return nil, fault.New(fault.Failure, "the API server encrypts ConfigMaps, so the configuration cannot be read without it").Hint("use an older backup")
	}
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(value, nil, nil)
	if err != nil {
		return nil, err
	}
	configMap, ok := object.(*corev1.ConfigMap)
	if !ok {
		return nil, fmt.Errorf("it is a %T", object)
	}
	return configMap, nil
}
