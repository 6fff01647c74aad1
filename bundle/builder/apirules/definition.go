package apirules

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"airlift/bundle/builder/manifests"
)

// The groups of the API server's own extension points.
const (
	extensions = "apiextensions.k8s.io"
	aggregator = "apiregistration.k8s.io"
)

// A definition is the part of a CustomResourceDefinition that describes its kind.
type definition struct {
	kind    schema.GroupKind
	cluster bool
	served  map[string]bool // by version
}

// definitionOf returns the definition in an object, or nil.
func definitionOf(o *manifests.Object) *definition {
	if gvk := schema.FromAPIVersionAndKind(o.APIVersion, o.Kind); gvk.Group != extensions || gvk.Kind != "CustomResourceDefinition" {
		return nil
	}
	spec, _ := o.Content["spec"].(map[string]any)
	names, _ := spec["names"].(map[string]any)
	d := &definition{cluster: spec["scope"] == "Cluster", served: map[string]bool{}}
	d.kind.Group, _ = spec["group"].(string)
	d.kind.Kind, _ = names["kind"].(string)
	versions, _ := spec["versions"].([]any)
	for _, v := range versions {
		fields, _ := v.(map[string]any)
		if name, ok := fields["name"].(string); ok {
			served, _ := fields["served"].(bool)
			d.served[name] = served
		}
	}
	return d
}
