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

// A Definition is the kind that a CustomResourceDefinition defines.
type Definition struct {
	Group, Kind string
	Cluster     bool // objects have no namespace
	Versions    []DefinedVersion
}

// A DefinedVersion is a version of a Definition.
type DefinedVersion struct {
	Name   string
	Served bool
}

// Definition returns what a CustomResourceDefinition defines, or nil for another object.
func (o *Object) Definition() *Definition {
	if o.group() != "apiextensions.k8s.io" || o.Kind != "CustomResourceDefinition" {
		return nil
	}
	spec := at(o.Content, path{"spec"})
	d := &Definition{Cluster: spec["scope"] == "Cluster"}
	d.Group, _ = spec["group"].(string)
	d.Kind, _ = at(spec, path{"names"})["kind"].(string)
	for _, v := range objectsIn(spec["versions"]) {
		name, _ := v["name"].(string)
		served, _ := v["served"].(bool)
		d.Versions = append(d.Versions, DefinedVersion{name, served})
	}
	return d
}

// Scopes knows which objects have no namespace. The zero value knows the built-in kinds.
type Scopes struct {
	defined map[[2]string]bool // by group and kind of CustomResourceDefinitions
}

// Add adds the kinds that the CustomResourceDefinitions among the objects define.
func (s *Scopes) Add(objects []*Object) {
	for _, o := range objects {
		if d := o.Definition(); d != nil {
			if s.defined == nil {
				s.defined = map[[2]string]bool{}
			}
			s.defined[[2]string{d.Group, d.Kind}] = d.Cluster
		}
	}
}

// Cluster reports whether the object has no namespace. Kinds that are neither built in nor defined
// by a CustomResourceDefinition of Add are treated as namespaced.
func (s *Scopes) Cluster(o *Object) bool {
	return IsClusterKind(o.group(), o.Kind) || s.defined[[2]string{o.group(), o.Kind}]
}

// Identity is Object.Identity, without a namespace for an object that has none.
func (s *Scopes) Identity(o *Object, namespace string) Identity {
	i := o.Identity(namespace)
	if s.Cluster(o) {
		i.namespace = ""
	}
	return i
}

// IsClusterKind reports whether a built-in kind has no namespace.
func IsClusterKind(group, kind string) bool { return slices.Contains(clusterKinds[group], kind) }
