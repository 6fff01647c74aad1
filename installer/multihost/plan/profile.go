package plan

import (
	"cmp"

	"airlift/installer/config"
	"airlift/installer/multihost/spec"
)

// configured reports whether the file has something that a running cluster has to be compared with by reconfigure.
func (s *site) configured() bool { return s.has(config.ClusterKinds...) || s.Spec.Profile != "" }

// differs is why the configuration changes.
func (s *site) differs() string {
	switch own := s.Spec.Profile; {
	case own == spec.Hardened && s.cluster.Profile == "":
		return "the cluster gets the profile " + own
	case own == spec.NoProfile && s.cluster.Profile != "":
		return "the cluster loses the profile " + s.cluster.Profile
	case s.has(config.ClusterKinds...):
		return "kubeadm's documents differ"
	}
	return "values of the profile differ"
}

// ReconfigureFlags are the flags for what a running cluster is configured with. Without a profile in the file, the cluster keeps the one
// that it has: a document alone would take its values away.
func ReconfigureFlags(c *spec.Cluster, has string) (flags []string) {
	if (&site{kinds: kindsOf(c.Kubeadm)}).has(config.ClusterKinds...) {
		flags = append(flags, "--config", "-")
	}
	if name := cmp.Or(c.Profile, has); name != "" {
		flags = append(flags, "--profile", name)
	}
	return flags
}
