package cluster

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
)

// clusterInfoName is the ConfigMap in kube-public from which a joining node learns the CA.
const clusterInfoName = "cluster-info"

// ClusterInfoServer returns the API server's URL in cluster-info; "" if the cluster has none.
func (c Rotations) ClusterInfoServer(ctx context.Context) (string, error) {
	m, err := c.client.configMap(ctx, metav1.NamespacePublic, clusterInfoName)
	if err != nil || m == nil {
		return "", err
	}
	kubeconfig, err := clientcmd.Load([]byte(m.Data["kubeconfig"]))
	if err != nil {
		return "", fmt.Errorf("reading ConfigMap %s/%s: %w", metav1.NamespacePublic, clusterInfoName, err)
	}
	for _, one := range kubeconfig.Clusters {
		return one.Server, nil
	}
	return "", nil
}

// WaitForPublishedCA waits until the controller manager has published a bundle that is right to
// all pods, in kube-system's ConfigMap kube-root-ca.crt.
func (c Rotations) WaitForPublishedCA(ctx context.Context, right func(bundle string) bool, w Waiting) error {
	const name = "kube-root-ca.crt"
	wait := wait{
		what: "the controller manager to publish the CAs to all pods", timeout: w.Timeout, report: w.Report,
		hint: "see the log of the controller manager that is the leader: kubectl -n kube-system logs -l component=kube-controller-manager",
	}
	return wait.until(ctx, nil, func(ctx context.Context) (bool, string, error) {
		m, err := c.client.api.CoreV1().ConfigMaps(systemNamespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error(), nil
		}
		return right(m.Data["ca.crt"]), "ConfigMap " + name + " has other certificates", nil
	})
}

// EditExtensionCAs changes the bundles with which extension API servers verify clients. API
// servers add to them when they start, and never remove one.
func (c Rotations) EditExtensionCAs(ctx context.Context, edit func(bundle []byte) ([]byte, error)) (changed []string, err error) {
	const name = "extension-apiserver-authentication"
	m, err := c.client.configMap(ctx, systemNamespace, name)
	if err != nil || m == nil {
		return nil, err
	}
	data := map[string]string{}
	for _, key := range []string{"client-ca-file", "requestheader-client-ca-file"} {
		if m.Data[key] == "" {
			continue
		}
		edited, err := edit([]byte(m.Data[key]))
		if err != nil {
			return nil, fmt.Errorf("reading %q of ConfigMap %s/%s: %w", key, systemNamespace, name, err)
		}
		data[key] = string(edited)
	}
	return c.client.Apply(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: name}, Data: data})
}

// mergePatchNode sends a merge patch of a node that may be gone.
func (c Rotations) mergePatchNode(ctx context.Context, name string, patch []byte) error {
	err := persist(ctx, func() error {
		_, err := c.client.api.CoreV1().Nodes().Patch(ctx, name, mergePatch, patch, metav1.PatchOptions{})
		return err
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("changing node %q: %w", name, err)
	}
	return nil
}
