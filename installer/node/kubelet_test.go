package node

import (
	"testing"

	kubeletv1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"
)

// TestKubeletHealth: port 0 disables the kubelet's health check.
func TestKubeletHealth(t *testing.T) {
	for text, want := range map[string]string{
		"":                 "http://127.0.0.1:10248/healthz",
		"healthzPort: 0\n": "",
		"healthzPort: 999\nhealthzBindAddress: '::1'\n": "http://[::1]:999/healthz",
		"healthzBindAddress: 0.0.0.0\n":                 "http://localhost:10248/healthz",
	} {
		var c kubeletv1.KubeletConfiguration
		if err := yaml.Unmarshal([]byte(text), &c); err != nil {
			t.Fatal(err)
		}
		if got := KubeletHealth(&c); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
