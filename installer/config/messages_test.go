package config_test

import (
	"fmt"
	"strings"
	"testing"

	"airlift/installer/config"
	"airlift/internal/fault"
)

// kubeadm refuses each of these names too; the message names what to write.
func TestWrongEndpoints(t *testing.T) {
	for endpoint, want := range map[string]string{
		"API.Example.COM:6443":          "has capital letters: write api.example.com",
		"API":                           "has capital letters: write api",
		"api.example.com.":              "ends with a dot: write api.example.com",
		"API.example.com.:6443":         "ends with a dot: write api.example.com",
		"https://api.example.com:6443/": "is a URL: write api.example.com:6443",
		"api_1.example.com":             "has no _",
		"10.0.0.1/24":                   "without a path",
		"*.example.com":                 "wildcard",
		"[fe80::1%eth0]:6443":           "has a zone",
		"-a.example":                    "neither an IP address nor a DNS name",
	} {
		if _, _, err := config.SplitEndpoint(endpoint, 6443); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", endpoint, err, want)
		}
	}
}

// The kubelet has 130 fields: a message names only fields that may be meant.
func TestUnknownFieldOfManyIsShort(t *testing.T) {
	for field, want := range map[string]string{
		"maxPodsPerNode": "similar fields are maxPods, podsPerCore, ",
		"imageGCHigh":    "did you mean imageGCHighThresholdPercent?",
		"diskQuota":      "config print init-defaults --component-configs KubeletConfiguration",
	} {
		path := writeFile(t, inVersion(head+"---\napiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"+field+": 3\n", "v1beta4", "v1.37.1"))
		err := refusal(path)
		text := fmt.Sprint(err, fault.Hint(err))
		if err == nil || !strings.Contains(text, "KubeletConfiguration."+field) || !strings.Contains(text, want) || len(text) > 400+len(path) {
			t.Errorf("%s: %v, want %q", field, err, want)
		}
	}
}

func TestNamesInCapitals(t *testing.T) {
	for text, want := range map[string]string{
		"controlPlaneEndpoint: API.Example.COM:6443\n": `"API.Example.COM" has capital letters: write api.example.com`,
		"networking: {dnsDomain: Cluster.Local}\n":     `"Cluster.Local" has capital letters: write cluster.local`,
		"networking: {dnsDomain: cluster.local.}\n":    `"cluster.local." ends with a dot: write cluster.local`,
	} {
		err := refusal(writeFile(t, inVersion(head+text, "v1beta4", "v1.37.1")))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
