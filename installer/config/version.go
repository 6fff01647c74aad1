package config

import (
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"airlift/internal/documents/problems"
	"airlift/internal/fault"
)

// labels are version labels such as "stable-1.29", the newest v1.29, which kubeadm
// resolves on the internet (util/version.go).
var labels = regexp.MustCompile(`^(?:release/)?(?:stable|latest)(?:-(1)(?:\.(\d+))?)?$`)

// CheckVersion is CheckVersion with the field of the configuration file.
func (c *Config) CheckVersion(bundle string) (wrong []problems.Problem) {
	if err := CheckVersion(c.KubernetesVersion, bundle); err != nil {
		wrong = append(wrong, c.Problem("ClusterConfiguration.kubernetesVersion", fault.Hint(err), "%v", err))
	}
	return wrong
}

// CheckVersion compares the requested Kubernetes version with the bundle's, which is the only one
// that can be installed. An empty version, or a label that matches the bundle's version, such as
// stable-1.29, is allowed. Every other version is an error (fault.Usage).
func CheckVersion(requested, bundle string) error {
	own, err := version.ParseSemantic(bundle)
	if err != nil {
		return fmt.Errorf("reading the bundle's Kubernetes version: %w", err)
	}
	if requested == "" {
		return nil
	}
	if m := labels.FindStringSubmatch(requested); m != nil {
		if m[2] == "" || m[2] == fmt.Sprint(own.Minor()) {
			return nil
		}
	} else if v, err := version.ParseSemantic(strings.TrimPrefix(requested, "v")); err == nil {
		if v.String() == own.String() {
			return nil
		}
	} else {
		return fault.New(fault.Usage, "kubernetesVersion %q is not a version such as %s", requested, bundle).Hint("remove it, or write " + bundle)
	}
	return fault.New(fault.Usage, "the configuration requires Kubernetes %s, and this bundle has %s", requested, bundle).
		Hint("remove the version, or use a bundle built with 'bundle build --version " + requested + "'")
}
