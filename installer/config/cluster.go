package config

import (
	"k8s.io/apimachinery/pkg/util/version"

	"airlift/internal/fault"
)

// maxKubeletSkew is how many minor versions a kubelet may be older than the
// API server, since 1.28 (kubernetes.io/releases/version-skew-policy).
const maxKubeletSkew = 3

// UseCluster takes over the configuration of the cluster to join, except its
// version: this node runs the bundle's version. The error (fault.Preflight) is
// why a kubelet of that version cannot join this cluster.
func (c *Config) UseCluster(cluster Cluster) error {
	own, err := version.ParseSemantic(c.KubernetesVersion)
	if err != nil {
		return err
	}
	theirs, err := version.ParseSemantic(cluster.KubernetesVersion)
	if err != nil {
		return err
	}
	skew := int(theirs.Minor()) - int(own.Minor())
	if own.Major() != theirs.Major() || skew < 0 || skew > maxKubeletSkew {
		return fault.New(fault.Preflight, "this bundle's kubelet is %s and the cluster is %s: a kubelet may be up to %d minor versions older than the API server, and never newer",
			c.KubernetesVersion, cluster.KubernetesVersion, maxKubeletSkew).
			Hint("use a bundle built with 'bundle build --version " + cluster.KubernetesVersion + "'")
	}
	cluster.KubernetesVersion = c.KubernetesVersion
	if cluster.CertificatesDir == "" {
		cluster.CertificatesDir = CertificatesDir
	}
	// Up to v1.30, the cluster's configuration has this timeout, and join's configuration has no
	// field for it.
	if t := cluster.APIServer.TimeoutForControlPlane; t != 0 && c.Timeouts.ControlPlaneComponentHealthCheck == DefaultControlPlaneTimeout {
		c.Timeouts.ControlPlaneComponentHealthCheck = t
	}
	cluster.APIServer.TimeoutForControlPlane = c.Timeouts.ControlPlaneComponentHealthCheck
	c.Cluster = cluster
	return nil
}
