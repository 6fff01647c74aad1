package render

import (
	"cmp"
	"slices"
	"strings"

	"airlift/installer/config"
	"airlift/installer/pki"
)

// ClusterConfiguration returns the ClusterConfiguration as kubeadm of this
// Kubernetes version stores it in the ConfigMap kubeadm-config.
func ClusterConfiguration(cfg *config.Config) ([]byte, error) {
	stored := StoredCluster(cfg)
	return stored.Write(minor(cfg) >= httpEndpointsFrom)
}

// StoredCluster returns the settings that ClusterConfiguration writes: some older versions of kubeadm
// add defaults.
func StoredCluster(cfg *config.Config) config.Cluster {
	c := cfg.Cluster
	c.EncryptionAlgorithm = cmp.Or(c.EncryptionAlgorithm, pki.DefaultAlgorithm)
	if c.ControlPlaneEndpoint != "" {
		// With the default port, as kubeadm completes it.
		c.ControlPlaneEndpoint = strings.TrimPrefix(cfg.ServerURL(), "https://")
	}
	c.APIServer.TimeoutForControlPlane = 0
	if minor(cfg) < timeoutUnrecordedFrom {
		c.APIServer.TimeoutForControlPlane = startupTimeout(cfg)
	}
	if minor(cfg) < authorizationUnrecordedFrom {
		recorded := func(a config.Arg) bool { return a.Name == "authorization-mode" && a.Value != "" }
		if !slices.ContainsFunc(c.APIServer.ExtraArgs, recorded) {
			c.APIServer.ExtraArgs = append(slices.Clone(c.APIServer.ExtraArgs), config.Arg{Name: "authorization-mode", Value: defaultAuthorizationMode})
		}
	}
	return c
}
