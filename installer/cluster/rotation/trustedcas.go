package rotation

import (
	"context"
	"fmt"

	"k8s.io/client-go/kubernetes"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"airlift/installer/cluster"
	"airlift/installer/cluster/wait"
)

// WaitForPublishedCA waits until the controller manager has published a bundle that is right to
// all pods, in kube-system's ConfigMap kube-root-ca.crt.
func WaitForPublishedCA(ctx context.Context, api kubernetes.Interface, right func(bundle string) bool, with wait.Limit) error {
	const name = "kube-root-ca.crt"
	w := wait.For{
		What: "the controller manager to publish the CAs to all pods", Timeout: with.Timeout, Report: with.Report,
		Hint: "see the log of the controller manager that is the leader: kubectl -n kube-system logs -l component=kube-controller-manager",
	}
	return w.Until(ctx, nil, func(ctx context.Context) (bool, string, error) {
		m, err := api.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error(), nil
		}
		return right(m.Data["ca.crt"]), "ConfigMap " + name + " has other certificates", nil
	})
}

// EditExtensionCAs changes the bundles with which extension API servers verify clients. API servers
// add CAs to these bundles when they start, and never remove a CA.
func EditExtensionCAs(ctx context.Context, c *cluster.Client, edit func(bundle []byte) ([]byte, error)) (changed []string, err error) {
	const name = "extension-apiserver-authentication"
	m, err := cluster.ConfigMap(ctx, c.API, metav1.NamespaceSystem, name)
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
			return nil, fmt.Errorf("reading %q of ConfigMap %s/%s: %w", key, metav1.NamespaceSystem, name, err)
		}
		data[key] = string(edited)
	}
	return c.Apply(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: name}, Data: data})
}
