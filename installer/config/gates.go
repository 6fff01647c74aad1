package config

import "fmt"

// NodeLocalCRISocket says whether each node keeps its container runtime's
// socket in /var/lib/kubelet/instance-config.yaml, rather than in a kubelet
// flag and in an annotation of its Node object: kubeadm's feature gate of that
// name (cmd/kubeadm/app/features), there since v1.32 and fixed since v1.36.
func (c *Cluster) NodeLocalCRISocket() bool {
	return c.gate("NodeLocalCRISocket", 32, 34, 36)
}

// ControlPlaneKubeletLocalMode says whether the kubelet of a control plane
// talks to the API server on its own host instead of the shared endpoint:
// kubeadm's feature gate of that name, there since v1.31 and fixed since v1.35.
func (c *Cluster) ControlPlaneKubeletLocalMode() bool {
	return c.gate("ControlPlaneKubeletLocalMode", 31, 33, 35)
}

// gate is the state of a feature gate that came in one minor version, was on by
// default from another, and could not be turned off any more from a third.
func (c *Cluster) gate(name string, came, on, fixed int) bool {
	minor := c.Minor()
	if set, said := c.FeatureGates[name]; said && came <= minor && minor < fixed {
		return set
	}
	return minor >= on
}

// Minor is Kubernetes' minor version: 29 for "v1.29.15".
func (c *Cluster) Minor() int {
	var n int
	fmt.Sscanf(c.KubernetesVersion, "v1.%d.", &n)
	return n
}
