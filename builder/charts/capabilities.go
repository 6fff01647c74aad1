package charts

import (
	"fmt"
	"slices"

	"helm.sh/helm/v4/pkg/chart/common"

	"airlift/builder/apirules"
	"airlift/internal/fault"
)

// capabilities returns the cluster's properties that templates can read.
func (want Chart) capabilities() (*common.Capabilities, error) {
	version, err := common.ParseKubeVersion(want.KubernetesVersion)
	if err != nil {
		return nil, fault.New(fault.Usage, "kubernetes version %q: %w", want.KubernetesVersion, err).Hint("write it as v1.37.1")
	}
	minor := 0
	if _, err := fmt.Sscan(version.Minor, &minor); err != nil {
		return nil, fault.New(fault.Usage, "kubernetes version %q: %w", want.KubernetesVersion, err).Hint("write it as v1.37.1")
	}
	c := common.DefaultCapabilities.Copy()
	c.KubeVersion = *version
	c.APIVersions = append(served(minor), want.APIVersions...)
	return c, nil
}

// served returns the API versions that a cluster of 1.minor serves by default, in both forms
// that Helm knows: apps/v1 and apps/v1/Deployment.
func served(minor int) common.VersionSet {
	found := map[string]bool{
		// Subresources have kinds of other groups, and are listed with their resource's.
		"apps/v1/Scale": true, "v1/Scale": true, "v1/Eviction": true, "v1/TokenRequest": true,
	}
	for _, kind := range apirules.Served(minor) {
		version := kind.GroupVersion().String()
		if !slices.Contains(notResources, version+"/"+kind.Kind) {
			found[version], found[version+"/"+kind.Kind] = true, true
		}
	}
	var list common.VersionSet
	for v := range found {
		list = append(list, v)
	}
	slices.Sort(list)
	return list
}

// notResources are kinds with a lifecycle that no resource has, or only subresources of other
// groups.
var notResources = []string{
	"authentication.k8s.io/v1/TokenRequest", "autoscaling/v1/Scale", "policy/v1/Eviction",
	"v1/PodLogOptions", "v1/RangeAllocation", "v1/SerializedReference",
}
