package apirules

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"airlift/internal/fault"
)

// types are the types of all built-in kinds, in all versions.
var types = sync.OnceValue(func() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(scheme.AddToScheme(s))
	utilruntime.Must(apiextensions.AddToScheme(s))
	utilruntime.Must(apiregistration.AddToScheme(s))
	return s
})

// gone are kinds that older versions had and the linked types no longer have. Those without a first
// version were removed before the oldest version of a bundle.
var gone = map[schema.GroupVersionKind]struct{ first, last int }{
	{Group: "autoscaling", Version: "v2beta1", Kind: "HorizontalPodAutoscaler"}:              {0, 24},
	{Group: "autoscaling", Version: "v2beta2", Kind: "HorizontalPodAutoscaler"}:              {0, 25},
	{Group: "policy", Version: "v1beta1", Kind: "PodSecurityPolicy"}:                         {0, 24},
	{Group: "scheduling.k8s.io", Version: "v1alpha1", Kind: "PriorityClass"}:                 {0, 21},
	{Group: "certificates.k8s.io", Version: "v1alpha1", Kind: "PodCertificateRequest"}:       {34, 34},
	{Group: "coordination.k8s.io", Version: "v1alpha1", Kind: "LeaseCandidate"}:              {31, 31},
	{Group: "networking.k8s.io", Version: "v1alpha1", Kind: "IPAddress"}:                     {27, 33},
	{Group: "networking.k8s.io", Version: "v1alpha1", Kind: "ServiceCIDR"}:                   {29, 33},
	{Group: "networking.k8s.io", Version: "v1alpha1", Kind: "ClusterCIDR"}:                   {0, 28},
	{Group: "resource.k8s.io", Version: "v1alpha2", Kind: "PodSchedulingContext"}:            {27, 30},
	{Group: "resource.k8s.io", Version: "v1alpha2", Kind: "ResourceClaim"}:                   {27, 30},
	{Group: "resource.k8s.io", Version: "v1alpha2", Kind: "ResourceClaimParameters"}:         {30, 30},
	{Group: "resource.k8s.io", Version: "v1alpha2", Kind: "ResourceClaimTemplate"}:           {27, 30},
	{Group: "resource.k8s.io", Version: "v1alpha2", Kind: "ResourceClass"}:                   {27, 30},
	{Group: "resource.k8s.io", Version: "v1alpha2", Kind: "ResourceClassParameters"}:         {30, 30},
	{Group: "resource.k8s.io", Version: "v1alpha2", Kind: "ResourceSlice"}:                   {30, 30},
	{Group: "resource.k8s.io", Version: "v1alpha3", Kind: "DeviceClass"}:                     {31, 33},
	{Group: "resource.k8s.io", Version: "v1alpha3", Kind: "PodSchedulingContext"}:            {31, 31},
	{Group: "resource.k8s.io", Version: "v1alpha3", Kind: "ResourceClaim"}:                   {31, 33},
	{Group: "resource.k8s.io", Version: "v1alpha3", Kind: "ResourceClaimTemplate"}:           {31, 33},
	{Group: "resource.k8s.io", Version: "v1alpha3", Kind: "ResourceSlice"}:                   {31, 33},
	{Group: "scheduling.k8s.io", Version: "v1alpha1", Kind: "Workload"}:                      {35, 35},
	{Group: "scheduling.k8s.io", Version: "v1alpha2", Kind: "Workload"}:                      {36, 36},
	{Group: "scheduling.k8s.io", Version: "v1alpha2", Kind: "PodGroup"}:                      {36, 36},
	{Group: "storagemigration.k8s.io", Version: "v1alpha1", Kind: "StorageVersionMigration"}: {30, 34},
}

// notApplied are kinds with a lifecycle that cannot be applied: parts of requests, and answers that
// are computed.
var notApplied = regexp.MustCompile(`^(authentication|authorization|imagepolicy)\.k8s\.io/|^(v1|autoscaling/v1|policy/v1|policy/v1beta1|extensions/v1beta1|apps/v1beta1|apps/v1beta2) ` +
	`(Binding|ComponentStatus|DeploymentRollback|Eviction|PodLogOptions|PodStatusResult|RangeAllocation|Scale|SerializedReference)$`)

var stable = regexp.MustCompile(`^v[0-9]+$`)

// A life is when a kind was served.
type life struct {
	introduced, removed int // minor versions; removed is 0 if it is not
	replacement         string
	resource            bool // it is a resource that can be applied
	known               bool // the linked types have it
}

// lifeOf returns the life of a built-in kind; ok is false if none of the versions has it.
func lifeOf(gvk schema.GroupVersionKind) (l life, ok bool) {
	if g, known := gone[gvk]; known {
		return life{introduced: g.first, removed: g.last + 1, resource: true}, true
	}
	object, err := types().New(gvk)
	if err != nil || meta.IsListType(object) {
		return life{}, false
	}
	l = life{known: true, resource: !notApplied.MatchString(gvk.GroupVersion().String() + " " + gvk.Kind)}
	switch gvk.Group {
	case extensions, aggregator: // their types have no lifecycle
		if gvk.Kind != "CustomResourceDefinition" && gvk.Kind != "APIService" {
			return life{}, false
		}
		return l, true
	}
	introduced, ok := object.(interface{ APILifecycleIntroduced() (int, int) })
	if !ok {
		return life{}, false // options of a request
	}
	_, l.introduced = introduced.APILifecycleIntroduced()
	if removed, ok := object.(interface{ APILifecycleRemoved() (int, int) }); ok {
		_, l.removed = removed.APILifecycleRemoved()
	}
	if next, ok := object.(interface {
		APILifecycleReplacement() schema.GroupVersionKind
	}); ok {
		r := next.APILifecycleReplacement()
		l.replacement = r.GroupVersion().String() + ", kind " + r.Kind
	}
	return l, true
}

// serves reports whether the API servers of 1.minor serve a built-in kind by default. Since 1.24, new
// beta versions are not served by default. The last older one, flowcontrol v1beta3, ended with 1.31.
func serves(gvk schema.GroupVersionKind, minor int) bool {
	l, ok := lifeOf(gvk)
	flowControl := gvk.Group == "flowcontrol.apiserver.k8s.io" && gvk.Version == "v1beta3"
	return ok && l.has(minor) && (stable.MatchString(gvk.Version) || flowControl)
}

// Served returns the built-in kinds that the API servers of 1.minor serve by default, sorted.
func Served(minor int) []schema.GroupVersionKind {
	return candidates(minor, func(schema.GroupVersionKind) bool { return true })
}

func (l life) has(minor int) bool {
	return l.introduced <= minor && (l.removed == 0 || minor < l.removed)
}

// builtIn are the API groups of the API server.
var builtIn = sync.OnceValue(func() map[string]bool {
	groups := map[string]bool{}
	for gvk := range types().AllKnownTypes() {
		if _, ok := lifeOf(gvk); ok {
			groups[gvk.Group] = true
		}
	}
	return groups
})

// candidates returns the built-in kinds that match and that 1.minor serves by default, sorted.
func candidates(minor int, match func(schema.GroupVersionKind) bool) (list []schema.GroupVersionKind) {
	for gvk := range types().AllKnownTypes() {
		if match(gvk) && serves(gvk, minor) {
			list = append(list, gvk)
		}
	}
	slices.SortFunc(list, func(a, b schema.GroupVersionKind) int { return strings.Compare(a.String(), b.String()) })
	return list
}

// api returns the problem of an object's apiVersion and kind, or nothing. known is set if the linked
// types have the kind.
func (c *checker) api(o Object) (why, hint string, maybe, known bool) {
	gvk := o.GroupVersionKind()
	l, ok := lifeOf(gvk)
	switch {
	case !ok && (builtIn()[gvk.Group] || !strings.Contains(gvk.Group, ".") && !slices.Contains(c.aggregated, gvk.Group)):
		why = fmt.Sprintf("Kubernetes %s has no kind %s in %s", c.Version, gvk.Kind, o.APIVersion)
		return why, c.nearest(gvk), false, false
	case !ok:
		return "", "", false, false
	case !l.resource:
		return fmt.Sprintf("a %s cannot be applied: it is only part of a request", gvk.Kind), "remove it", false, false
	case l.introduced > c.minor && !c.newer:
		return fmt.Sprintf("%s, kind %s came with v1.%d, and the bundle has Kubernetes %s", o.APIVersion, gvk.Kind, l.introduced, c.Version), c.nearest(gvk), false, false
	case !l.has(c.minor):
		hint = c.nearest(gvk)
		if l.replacement != "" {
			hint = "write apiVersion: " + l.replacement
		}
		return fmt.Sprintf("%s, kind %s was removed in v1.%d, and the bundle has Kubernetes %s", o.APIVersion, gvk.Kind, l.removed, c.Version), hint, false, false
	case !serves(gvk, c.minor) && gvk.Group != extensions && gvk.Group != aggregator:
		return fmt.Sprintf("an API server of %s serves %s only if its runtime-config enables it", c.Version, o.APIVersion), c.nearest(gvk), true, l.known
	}
	return "", "", false, l.known
}

// nearest is a hint with the kind that the user probably meant.
func (c *checker) nearest(gvk schema.GroupVersionKind) string {
	same := candidates(c.minor, func(k schema.GroupVersionKind) bool { return k.Kind == gvk.Kind && k.Version != gvk.Version })
	if len(same) == 0 {
		same = candidates(c.minor, func(k schema.GroupVersionKind) bool { return k.Kind == gvk.Kind })
	}
	if len(same) > 0 {
		return "write apiVersion: " + same[len(same)-1].GroupVersion().String()
	}
	var kinds []string
	for _, k := range candidates(c.minor, func(k schema.GroupVersionKind) bool { return k.Group == gvk.Group }) {
		kinds = append(kinds, k.Kind)
	}
	if kind := fault.Nearest(gvk.Kind, kinds); kind != "" {
		return "write kind: " + kind
	}
	return "correct apiVersion and kind, or remove the object"
}
