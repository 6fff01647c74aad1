package manifests

import "slices"

// clusterKinds are the built-in kinds without a namespace, by API group, of all versions of
// Kubernetes that a bundle may have.
var clusterKinds = map[string][]string{
	"": {"ComponentStatus", "Namespace", "Node", "PersistentVolume"},
	"admissionregistration.k8s.io": {"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", "MutatingWebhookConfiguration",
		"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "ValidatingWebhookConfiguration"},
	"apiextensions.k8s.io":         {"CustomResourceDefinition"},
	"apiregistration.k8s.io":       {"APIService"},
	"certificates.k8s.io":          {"CertificateSigningRequest", "ClusterTrustBundle"},
	"flowcontrol.apiserver.k8s.io": {"FlowSchema", "PriorityLevelConfiguration"},
	"internal.apiserver.k8s.io":    {"StorageVersion"},
	"networking.k8s.io":            {"ClusterCIDR", "IPAddress", "IngressClass", "ServiceCIDR"},
	"node.k8s.io":                  {"RuntimeClass"},
	"rbac.authorization.k8s.io":    {"ClusterRole", "ClusterRoleBinding"},
	"resource.k8s.io":              {"DeviceClass", "DeviceTaintRule", "ResourceClass", "ResourcePoolStatusRequest", "ResourceSlice"},
	"scheduling.k8s.io":            {"PriorityClass"},
	"storage.k8s.io":               {"CSIDriver", "CSINode", "StorageClass", "VolumeAttachment", "VolumeAttributesClass"},
	"storagemigration.k8s.io":      {"StorageVersionMigration"},
}

// Scopes knows which objects have no namespace. The zero value knows the built-in kinds.
type Scopes struct {
	defined map[kindOfGroup]bool // kinds of CustomResourceDefinitions
}

type kindOfGroup struct{ group, kind string }

// Add adds the kinds that the CustomResourceDefinitions among the objects define.
func (s *Scopes) Add(objects []*Object) {
	for _, o := range objects {
		if o.group() != "apiextensions.k8s.io" || o.Kind != "CustomResourceDefinition" {
			continue
		}
		spec, _ := o.Content["spec"].(map[string]any)
		names, _ := spec["names"].(map[string]any)
		group, _ := spec["group"].(string)
		kind, _ := names["kind"].(string)
		if s.defined == nil {
			s.defined = map[kindOfGroup]bool{}
		}
		s.defined[kindOfGroup{group, kind}] = spec["scope"] == "Cluster"
	}
}

// Cluster reports whether the object has no namespace. Kinds that are neither built in nor defined
// by a CustomResourceDefinition of Add are treated as namespaced.
func (s *Scopes) Cluster(o *Object) bool {
	return IsClusterKind(o.group(), o.Kind) || s.defined[kindOfGroup{o.group(), o.Kind}]
}

// IsClusterKind reports whether a built-in kind has no namespace.
func IsClusterKind(group, kind string) bool { return slices.Contains(clusterKinds[group], kind) }
