package cluster

import (
	"context"
	"fmt"

	"k8s.io/client-go/kubernetes"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeproxyv1 "k8s.io/kube-proxy/config/v1alpha1"

	"airlift/installer/cluster/wait"
	"airlift/installer/config"
	"airlift/internal/documents"
	"airlift/internal/fault"
)

// FetchedConfig is the cluster's configuration for a joining node.
type FetchedConfig struct {
	Cluster config.Cluster
	// Kubelet is the cluster-wide KubeletConfiguration, YAML as stored.
	Kubelet []byte
	// KubeProxy is the cluster's KubeProxyConfiguration; nil without
	// kube-proxy or without permission to read it.
	KubeProxy *kubeproxyv1.KubeProxyConfiguration
	// Warnings name unknown fields of the cluster's configuration.
	Warnings []string
	// Versions are the resourceVersions of the ConfigMaps that were read, by name: any change of one has another.
	Versions map[string]string
}

// FetchConfig reads what init uploaded. A bootstrap token's permissions suffice.
func (c *Client) FetchConfig(ctx context.Context) (*FetchedConfig, error) {
	r, versions := c.configReader(ctx), map[string]string{}
	get := r.get
	r.get = func(name string) (*corev1.ConfigMap, error) {
		configMap, err := get(name)
		if err == nil {
			versions[name] = configMap.ResourceVersion
		}
		return configMap, err
	}
	fetched, err := r.config()
	if err == nil {
		fetched.Versions = versions
	}
	return fetched, err
}

// Endpoint reads how the cluster's nodes reach the API servers. A kubelet's permissions suffice.
func (c *Client) Endpoint(ctx context.Context) (config.Endpoint, error) {
	return c.configReader(ctx).endpoint()
}

// ProxyConfig reads the configuration of kube-proxy; nil if the cluster has none, or if the client must not read it.
func (c *Client) ProxyConfig(ctx context.Context) (*kubeproxyv1.KubeProxyConfiguration, error) {
	return c.configReader(ctx).kubeProxy()
}

func (c *Client) configReader(ctx context.Context) configReader {
	return configReader{
		get: func(name string) (configMap *corev1.ConfigMap, err error) {
			configMap, err = wait.Get(ctx, c.API.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get, name)
			return configMap, err
		},
		hint: "to restore what is missing, run on the control plane: ./install init",
	}
}

// A configReader reads ConfigMaps in kube-system. hint is the hint for a missing ConfigMap.
type configReader struct {
	get  func(name string) (*corev1.ConfigMap, error)
	hint string
}

func (s configReader) config() (*FetchedConfig, error) {
	data, err := s.value(kubeadmConfigMap, kubeadmConfigKey)
	if err != nil {
		return nil, err
	}
	cluster, warnings, err := config.DecodeClusterConfiguration([]byte(data))
	if err != nil {
		return nil, fmt.Errorf("reading ConfigMap %s/%s: %w", metav1.NamespaceSystem, kubeadmConfigMap, err)
	}
	kubelet, err := s.value(kubeletConfigMap, kubeletConfigKey)
	if err != nil {
		return nil, err
	}
	if cluster.Endpoint, err = s.endpoint(); err != nil {
		return nil, err
	}
	if cluster.Registry, err = s.registry(); err != nil {
		return nil, err
	}
	if cluster.Reconfiguration, err = s.reconfiguration(); err != nil {
		return nil, err
	}
	fetched := &FetchedConfig{Cluster: cluster, Kubelet: []byte(kubelet), Warnings: warnings}
	if fetched.KubeProxy, err = s.kubeProxy(); err != nil {
		fetched.Warnings = append(fetched.Warnings, fmt.Sprintf("kernel modules for kube-proxy's mode may be missing: %v", err))
	}
	return fetched, nil
}

// endpoint reads how nodes reach the API servers. A cluster that has no ConfigMap for that uses no service of Airlift.
func (s configReader) endpoint() (e config.Endpoint, err error) {
	configMap, err := s.get(config.EndpointConfigMap)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return e, nil
	}
	if err == nil {
		e, err = config.DecodeEndpoint([]byte(configMap.Data[config.EndpointKey]))
	}
	if err != nil {
		return e, fmt.Errorf("reading ConfigMap %s/%s: %w", metav1.NamespaceSystem, config.EndpointConfigMap, err)
	}
	return e, nil
}

// registry reads what the control planes keep and serve. A cluster that has no ConfigMap for that has no embedded registry.
func (s configReader) registry() (r config.EmbeddedRegistry, err error) {
	configMap, err := s.get(config.RegistryConfigMap)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return r, nil
	}
	if err == nil {
		r, err = decodeRegistry(configMap)
	}
	if err != nil {
		return r, registryError("reading", err)
	}
	return r, nil
}

// reconfiguration reads the number of the last reconfiguration. A cluster that has no ConfigMap for that had none.
func (s configReader) reconfiguration() (r config.Reconfiguration, err error) {
	configMap, err := s.get(config.ReconfigurationConfigMap)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return r, nil
	}
	if err == nil {
		r, err = config.DecodeReconfiguration([]byte(configMap.Data[config.ReconfigurationKey]))
	}
	if err != nil {
		return r, fmt.Errorf("reading ConfigMap %s/%s: %w", metav1.NamespaceSystem, config.ReconfigurationConfigMap, err)
	}
	return r, nil
}

// kubeProxy reads kube-proxy's configuration, if the cluster has
// kube-proxy. kubeadm gives bootstrap tokens permission to read it.
func (s configReader) kubeProxy() (*kubeproxyv1.KubeProxyConfiguration, error) {
	configMap, err := s.get(kubeProxyConfigMap)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil, nil
	}
	proxy := &kubeproxyv1.KubeProxyConfiguration{}
	if err == nil {
		err = documents.Unmarshal([]byte(configMap.Data["config.conf"]), proxy)
	}
	if err != nil {
		return nil, fmt.Errorf("reading ConfigMap %s/%s: %w", metav1.NamespaceSystem, kubeProxyConfigMap, err)
	}
	return proxy, nil
}

// value reads one key of a ConfigMap.
func (s configReader) value(name, key string) (string, error) {
	configMap, err := s.get(name)
	switch {
	case apierrors.IsUnauthorized(err):
		return "", fault.New(fault.Failure, "reading ConfigMap %s/%s: the cluster rejects the token: %w", metav1.NamespaceSystem, name, err).Hint(NewTokenHint)
	case apierrors.IsNotFound(err):
		return "", fault.New(fault.Failure, "the cluster has no ConfigMap %s/%s", metav1.NamespaceSystem, name).Hint(s.hint)
	case err != nil:
		return "", fmt.Errorf("reading ConfigMap %s/%s: %w", metav1.NamespaceSystem, name, err)
	case configMap.Data[key] == "":
		return "", fault.New(fault.Failure, "ConfigMap %s/%s has no %q", metav1.NamespaceSystem, name, key).Hint(s.hint)
	}
	return configMap.Data[key], nil
}

// ConfigMap reads a ConfigMap; nil if it does not exist or must not be read.
func ConfigMap(ctx context.Context, api kubernetes.Interface, namespace, name string) (found *corev1.ConfigMap, err error) {
	found, err = wait.Get(ctx, api.CoreV1().ConfigMaps(namespace).Get, name)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading ConfigMap %s/%s: %w", namespace, name, err)
	}
	return found, nil
}
