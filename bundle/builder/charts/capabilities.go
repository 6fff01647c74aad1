package charts

import (
	"fmt"
	"regexp"
	"slices"

	"helm.sh/helm/v4/pkg/chart/common"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"airlift/fault"
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

var stable = regexp.MustCompile(`^v[0-9]+$`)

// served returns the API versions that a cluster of 1.minor serves by default, in both forms
// that Helm knows: apps/v1 and apps/v1/Deployment. Since 1.24, new beta versions are not
// served by default. The last older one, flowcontrol v1beta3, ended with 1.31.
// Source: pkg/controlplane/instance.go and the lifecycle of each type in k8s.io/api.
func served(minor int) common.VersionSet {
	known := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, apiextensions.AddToScheme} {
		if err := add(known); err != nil {
			panic(err) // the types are compiled in
		}
	}
	found := map[string]bool{
		// The aggregator's types are not in client-go.
		"apiregistration.k8s.io/v1": true, "apiregistration.k8s.io/v1/APIService": true,
		// Subresources have kinds of other groups, and are listed with their resource's.
		"apps/v1/Scale": true, "v1/Scale": true, "v1/Eviction": true, "v1/TokenRequest": true,
	}
	for kind := range known.AllKnownTypes() {
		if !isServed(known, kind, minor) {
			continue
		}
		version := kind.GroupVersion().String()
		found[version] = true
		found[version+"/"+kind.Kind] = true
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

func isServed(known *runtime.Scheme, kind schema.GroupVersionKind, minor int) bool {
	flowControl := kind.Group == "flowcontrol.apiserver.k8s.io" && kind.Version == "v1beta3"
	if !stable.MatchString(kind.Version) && !flowControl {
		return false
	}
	if slices.Contains(notResources, kind.GroupVersion().String()+"/"+kind.Kind) {
		return false
	}
	object, err := known.New(kind)
	if err != nil {
		return false
	}
	if kind.Group == "apiextensions.k8s.io" {
		return kind.Kind == "CustomResourceDefinition"
	}
	// Options of requests have no lifecycle. They are not objects.
	introduced, ok := object.(interface{ APILifecycleIntroduced() (int, int) })
	if !ok || meta.IsListType(object) {
		return false
	}
	if major, n := introduced.APILifecycleIntroduced(); major != 1 || n > minor {
		return false
	}
	removed, ok := object.(interface{ APILifecycleRemoved() (int, int) })
	if ok {
		if _, n := removed.APILifecycleRemoved(); n <= minor {
			return false
		}
	}
	return true
}
