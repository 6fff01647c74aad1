package apply

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// The ranks of objects, in the order in which they are applied. Within a rank, objects stay in the order of the manifest. The order
// is the same as in Helm: what pods read precedes the pods; the configuration of a webhook follows them, because the API server would refuse
// objects until the pods that serve it run; custom resources are last.
const (
	rankNamespace = iota
	rankDefinition
	rankBasis
	rankOther
	rankServed
	rankCustom
	ranks // how many there are
)

// basis are the kinds that pods read when they are created or start.
var basis = []string{
	"PriorityClass.scheduling.k8s.io", "RuntimeClass.node.k8s.io", "NetworkPolicy.networking.k8s.io", "ResourceQuota", "LimitRange",
	"PodDisruptionBudget.policy", "ServiceAccount", "Secret", "ConfigMap", "StorageClass.storage.k8s.io", "CSIDriver.storage.k8s.io",
	"PersistentVolume", "PersistentVolumeClaim", "ClusterRole.rbac.authorization.k8s.io", "ClusterRoleBinding.rbac.authorization.k8s.io",
	"Role.rbac.authorization.k8s.io", "RoleBinding.rbac.authorization.k8s.io", "Service",
}

// served are the kinds that make the API server call pods.
var served = []string{
	"APIService.apiregistration.k8s.io", "MutatingWebhookConfiguration.admissionregistration.k8s.io",
	"ValidatingWebhookConfiguration.admissionregistration.k8s.io",
}

// rank orders the objects of manifests.
func rank(o *unstructured.Unstructured) int { return rankOf(o.GroupVersionKind().GroupKind()) }

func rankOf(kind schema.GroupKind) int {
	switch name := kind.String(); {
	case name == "Namespace":
		return rankNamespace
	case name == crdKind:
		return rankDefinition
	case slices.Contains(basis, name):
		return rankBasis
	case slices.Contains(served, name):
		return rankServed
	case isCustom(kind.Group):
		return rankCustom
	}
	return rankOther
}

const crdKind = "CustomResourceDefinition.apiextensions.k8s.io"

// isCustom reports whether a group is not Kubernetes' own.
func isCustom(group string) bool {
	own := scheme.Scheme.IsGroupRegistered(group) || group == "apiextensions.k8s.io" || group == "apiregistration.k8s.io"
	return strings.Contains(group, ".") && !own
}
