package config

import (
	"fmt"
	"slices"
	"strings"
)

// NodeLocalCRISocket reports whether each node stores its container runtime's
// socket in /var/lib/kubelet/instance-config.yaml instead of a kubelet flag and
// an annotation of its Node object: kubeadm's feature gate of that name
// (cmd/kubeadm/app/features), which exists since v1.32 and is locked since v1.36.
func (c *Cluster) NodeLocalCRISocket() bool {
	return c.gate("NodeLocalCRISocket", 32, 34, 36)
}

// ControlPlaneKubeletLocalMode reports whether the kubelet of a control plane
// connects to the API server on its own host instead of the shared endpoint:
// kubeadm's feature gate of that name, which exists since v1.31 and is locked
// since v1.35.
func (c *Cluster) ControlPlaneKubeletLocalMode() bool {
	return c.gate("ControlPlaneKubeletLocalMode", 31, 33, 35)
}

// WaitForAllControlPlaneComponents reports whether join of a control plane waits for the
// controller manager and the scheduler too, not only for the API server: kubeadm's feature
// gate of that name, which exists since v1.30 and is locked since v1.34.
func (c *Cluster) WaitForAllControlPlaneComponents() bool {
	return c.gate("WaitForAllControlPlaneComponents", 30, 33, 34)
}

// gate is the state of a feature gate, from the minor versions in which it was
// added, was on by default, and was locked.
func (c *Cluster) gate(name string, added, on, locked int) bool {
	minor := c.Minor()
	if value, set := c.FeatureGates[name]; set && added <= minor && minor < locked {
		return value
	}
	return minor >= on
}

// Minor is Kubernetes' minor version: 29 for "v1.29.15".
func (c *Cluster) Minor() int {
	var n int
	fmt.Sscanf(c.KubernetesVersion, "v1.%d.", &n)
	return n
}

// featureGates are kubeadm's, with the first and the last minor version that has
// each (features.go of v1.29 to v1.37); to is 0 if v1.37 still has it.
var featureGates = map[string]struct{ from, to int }{
	"PublicKeysECDSA":                  {0, 36},
	"RootlessControlPlane":             {0, 0},
	"EtcdLearnerMode":                  {0, 32},
	"UpgradeAddonsBeforeControlPlane":  {0, 30},
	"WaitForAllControlPlaneComponents": {30, 34},
	"ControlPlaneKubeletLocalMode":     {31, 35},
	"NodeLocalCRISocket":               {32, 36},
}

// IsFeatureGate reports whether a feature gate is kubeadm's, of any version.
func IsFeatureGate(name string) bool {
	_, ok := featureGates[name]
	return ok
}

// CheckFeatureGates returns an error (fault.Usage) if kubeadm of this version has no such
// feature gate, or if Airlift does not implement it.
func (c *Config) CheckFeatureGates() error {
	v := &validator{origin: c.origin}
	v.gates(&c.Cluster)
	return v.err()
}

// gates refuses feature gates that kubeadm of this version does not have, and feature gates that
// Airlift does not implement.
func (v *validator) gates(c *Cluster) {
	minor := c.Minor()
	var known []string
	for _, name := range keys(featureGates) {
		if g := featureGates[name]; minor == 0 || minor >= g.from && (g.to == 0 || minor <= g.to) {
			known = append(known, name)
		}
	}
	for _, name := range keys(c.FeatureGates) {
		at := v.at("ClusterConfiguration.featureGates."+name, "--feature-gates "+name)
		g, ok := featureGates[name]
		switch {
		case !ok:
			v.addf("%s: kubeadm has no such feature gate; the known feature gates for v1.%d are %s", at, minor, strings.Join(known, ", "))
		case !slices.Contains(known, name) && minor < g.from:
			v.addf("%s: kubeadm has this feature gate from v1.%d on, and this is %s", at, g.from, c.KubernetesVersion)
		case !slices.Contains(known, name):
			v.addf("%s: kubeadm has no such feature gate since v1.%d, and this is %s: remove it", at, g.to+1, c.KubernetesVersion)
		case name == "RootlessControlPlane" && c.FeatureGates[name]:
			v.addf("%s: the control plane runs as root here; running it as other users is not supported", at)
		case name == "EtcdLearnerMode" && !c.FeatureGates[name]:
			v.addf("%s: Airlift always adds an etcd member as a learner, so that the cluster keeps its quorum; remove this feature gate", at)
		}
	}
}
