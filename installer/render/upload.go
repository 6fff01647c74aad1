package render

import (
	"crypto/sha256"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"airlift/installer/config"
	"airlift/installer/pki"
)

// UploadClusterConfig is the ConfigMap kubeadm-config, readable by nodes.
func UploadClusterConfig(cfg *config.Config) ([]runtime.Object, error) {
	cluster, err := ClusterConfiguration(cfg)
	if err != nil {
		return nil, err
	}
	objects := []runtime.Object{configMap(metav1.NamespaceSystem, "kubeadm-config", "ClusterConfiguration", cluster)}
	return append(objects, readable(metav1.NamespaceSystem, "kubeadm:nodes-kubeadm-config", "configmaps", "kubeadm-config",
		group(tokensGroup), group(nodesGroup))...), nil
}

// UploadKubeletConfig is the ConfigMap kubelet-config, readable by nodes.
func UploadKubeletConfig(cfg *config.Config) ([]runtime.Object, error) {
	kubelet, err := KubeletConfig(cfg)
	if err != nil {
		return nil, err
	}
	kubeletMap := configMap(metav1.NamespaceSystem, "kubelet-config", "kubelet", kubelet)
	if cfg.Kubelet == nil {
		signDefaults(kubeletMap)
	}
	return append([]runtime.Object{kubeletMap}, readable(metav1.NamespaceSystem, "kubeadm:kubelet-config", "configmaps", "kubelet-config",
		group(nodesGroup), group(tokensGroup))...), nil
}

// UploadEndpoint is the ConfigMap with the endpoint, which kubeadm-config has no field for. Nodes may read it, and the
// addresses of the API servers.
func UploadEndpoint(cfg *config.Config) ([]runtime.Object, error) {
	data, err := cfg.Endpoint.Encode()
	if err != nil {
		return nil, err
	}
	objects := []runtime.Object{configMap(metav1.NamespaceSystem, config.EndpointConfigMap, config.EndpointKey, data)}
	objects = append(objects, readable(metav1.NamespaceSystem, config.EndpointConfigMap, "configmaps", config.EndpointConfigMap,
		group(tokensGroup), group(nodesGroup))...)
	return append(objects, APIServersRBAC()...), nil
}

// UploadRegistry is the ConfigMap with what the control planes keep and serve, which kubeadm-config has no field for. Nodes may
// read it, and the addresses of the API servers.
func UploadRegistry(cfg *config.Config) ([]runtime.Object, error) {
	data, err := cfg.Registry.Encode()
	if err != nil {
		return nil, err
	}
	objects := []runtime.Object{configMap(metav1.NamespaceSystem, config.RegistryConfigMap, config.RegistryKey, data), registryRole()}
	objects = append(objects, allowed(metav1.NamespaceSystem, config.RegistryConfigMap, rbacv1.PolicyRule{
		Verbs: []string{"get", "list", "watch"}, APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{config.RegistryConfigMap},
	}, group(tokensGroup), group(nodesGroup))...)
	return append(objects, APIServersRBAC()...), nil
}

// UploadReconfiguration is the ConfigMap with the number of the last reconfiguration, which nodes may read.
func UploadReconfiguration(cfg *config.Config) ([]runtime.Object, error) {
	data, err := cfg.Reconfiguration.Encode()
	if err != nil {
		return nil, err
	}
	objects := []runtime.Object{configMap(metav1.NamespaceSystem, config.ReconfigurationConfigMap, config.ReconfigurationKey, data)}
	return append(objects, readable(metav1.NamespaceSystem, config.ReconfigurationConfigMap, "configmaps", config.ReconfigurationConfigMap,
		group(tokensGroup), group(nodesGroup))...), nil
}

// UploadFiles is the Secret with the files of the control planes, which reconfiguration.Seal encrypted.
func UploadFiles(sealed []byte) []runtime.Object {
	return []runtime.Object{&corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: config.FilesSecret},
		Type:       corev1.SecretTypeOpaque,
		Data:       map[string][]byte{config.FilesKey: sealed},
	}}
}

// ClusterInfo returns the public ConfigMap from which a joining node learns the
// API server's URL and the CA. The controller manager adds signatures with the
// bootstrap tokens.
func ClusterInfo(cfg *config.Config, caPEM []byte) []runtime.Object {
	info := configMap(metav1.NamespacePublic, "cluster-info", "kubeconfig", pki.ClusterInfoKubeconfig(cfg.ServerURL(), caPEM))
	anybody := rbacv1.Subject{Kind: rbacv1.UserKind, Name: "system:anonymous"}
	return append([]runtime.Object{info},
		readable(metav1.NamespacePublic, "kubeadm:bootstrap-signer-clusterinfo", "configmaps", "cluster-info", anybody)...)
}

func configMap(namespace, name, key string, data []byte) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Data:       map[string]string{key: string(data)},
	}
}

// signDefaults marks a ConfigMap as unchanged defaults, with a checksum of its
// values in the order of their keys: kubeadm upgrade may then replace it by the
// next version's defaults (componentconfigs/checksums.go). A ConfigMap with values
// of the user or of this host is not signed, so that upgrades keep it.
func signDefaults(m *corev1.ConfigMap) {
	sum := sha256.New()
	for _, key := range sortedKeys(m.Data) {
		sum.Write([]byte(m.Data[key]))
	}
	m.Annotations = map[string]string{
		"kubeadm.kubernetes.io/component-config.hash": fmt.Sprintf("sha256:%x", sum.Sum(nil)),
	}
}
