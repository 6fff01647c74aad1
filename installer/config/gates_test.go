package config_test

import (
	"testing"

	"airlift/installer/config"
)

func TestWaitForAllControlPlaneComponents(t *testing.T) {
	type gates = map[string]bool
	for _, c := range []struct {
		version string
		gates   gates
		want    bool
	}{
		{"v1.29.15", gates{"WaitForAllControlPlaneComponents": true}, false},
		{"v1.30.4", nil, false},
		{"v1.32.13", gates{"WaitForAllControlPlaneComponents": true}, true},
		{"v1.33.13", nil, true},
		{"v1.33.13", gates{"WaitForAllControlPlaneComponents": false}, false},
		{"v1.34.9", gates{"WaitForAllControlPlaneComponents": false}, true},
		{"v1.37.1", nil, true},
	} {
		cluster := &config.Cluster{KubernetesVersion: c.version, FeatureGates: c.gates}
		if got := cluster.WaitForAllControlPlaneComponents(); got != c.want {
			t.Errorf("%s %v: %t, want %t", c.version, c.gates, got, c.want)
		}
	}
}

// The table follows features.go of kubeadm v1.29 to v1.37.
func TestGates(t *testing.T) {
	type gates = map[string]bool
	for _, c := range []struct {
		version       string
		gates         gates
		socket, local bool
	}{
		{"v1.29.15", gates{"NodeLocalCRISocket": true, "ControlPlaneKubeletLocalMode": true}, false, false},
		{"v1.31.14", gates{"NodeLocalCRISocket": true, "ControlPlaneKubeletLocalMode": true}, false, true},
		{"v1.32.0", nil, false, false},
		{"v1.32.0", gates{"NodeLocalCRISocket": true, "ControlPlaneKubeletLocalMode": true}, true, true},
		{"v1.33.1", nil, false, true},
		{"v1.34.9", nil, true, true},
		{"v1.34.9", gates{"NodeLocalCRISocket": false, "ControlPlaneKubeletLocalMode": false}, false, false},
		{"v1.36.3", gates{"NodeLocalCRISocket": false, "ControlPlaneKubeletLocalMode": false}, true, true},
		{"v1.37.1", nil, true, true},
		// A newer version has the rules of the newest known one.
		{"v1.38.0", gates{"NodeLocalCRISocket": false, "ControlPlaneKubeletLocalMode": false}, true, true},
	} {
		cluster := &config.Cluster{KubernetesVersion: c.version, FeatureGates: c.gates}
		if socket, local := cluster.NodeLocalCRISocket(), cluster.ControlPlaneKubeletLocalMode(); socket != c.socket || local != c.local {
			t.Errorf("%s %v: %t, %t, want %t, %t", c.version, c.gates, socket, local, c.socket, c.local)
		}
	}
}
