package cluster

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"airlift/installer/config"
	"airlift/internal/fault"
)

// TestDamagedRegistry: every command that reads or changes a damaged list fails, changes nothing, and has a hint.
func TestDamagedRegistry(t *testing.T) {
	for name, text := range map[string]string{
		"cut":                "apiVersion: airlift/v1\nkind: Regis",
		"another version":    "apiVersion: airlift/v9\nkind: Registry\nbundles: []\n",
		"a path of the host": "apiVersion: airlift/v1\nkind: Registry\nbundles: [{id: a, size: 1, registries: [../../x]}]\n",
		"no name":            "apiVersion: airlift/v1\nkind: Registry\nbundles: [{id: a, size: 1, registries: [\"..\"]}]\n",
	} {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: config.RegistryConfigMap}, Data: map[string]string{config.RegistryKey: text}}
		c := &Client{API: fake.NewSimpleClientset(m)}
		_, read := c.Registry(t.Context())
		_, edit := c.EditRegistry(t.Context(), (*config.EmbeddedRegistry).Disable)
		_, fetch := c.configReader(t.Context()).registry()
		for doing, err := range map[string]error{"reading": read, "editing": edit, "fetching": fetch} {
			if err == nil || !strings.Contains(err.Error(), "ConfigMap kube-system/airlift-registry: ") || !strings.Contains(fault.Hint(err), "./install registry enable") {
				t.Errorf("%s: %s: %v, hint %q", name, doing, err, fault.Hint(err))
			}
		}
	}
}
