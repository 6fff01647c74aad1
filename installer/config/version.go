package config

import (
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"airlift/fault"
)

// labels are the names that stand for a release, "stable-1.29" for the newest
// v1.29: what kubeadm looks up on the Internet (util/version.go).
var labels = regexp.MustCompile(`^(?:release/)?(?:stable|latest)(?:-(1)(?:\.(\d+))?)?$`)

// CheckVersion compares the Kubernetes version that was asked for with the
// bundle's, which is the only one that can be had. None, and a label that the
// bundle's version answers to, such as stable-1.29, are fine. The error
// (fault.Usage) says why another is not.
func CheckVersion(asked, bundle string) error {
	own, err := version.ParseSemantic(bundle)
	if err != nil {
		return fmt.Errorf("reading the bundle's Kubernetes version: %w", err)
	}
	if asked == "" {
		return nil
	}
	if m := labels.FindStringSubmatch(asked); m != nil {
		if m[2] == "" || m[2] == fmt.Sprint(own.Minor()) {
			return nil
		}
	} else if v, err := version.ParseSemantic(strings.TrimPrefix(asked, "v")); err == nil {
		if v.String() == own.String() {
			return nil
		}
	} else {
		return fault.New(fault.Usage, "leave it out, or write "+bundle, "kubernetesVersion %q is not a version such as %s", asked, bundle)
	}
	return fault.New(fault.Usage, "leave the version out, or use a bundle made with 'bundle build --version "+asked+"'",
		"the configuration asks for Kubernetes %s, and this bundle brings %s", asked, bundle)
}
