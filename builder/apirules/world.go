package apirules

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"

	"airlift/builder/manifests"
)

// The groups of the API server's own extension points.
const (
	extensions = "apiextensions.k8s.io"
	aggregator = "apiregistration.k8s.io"
)

// A World is what is known of a cluster before the manifests of a bundle are applied to it.
type World struct {
	// Version is the cluster's version of Kubernetes: "v1.37.1".
	Version string
	// Exists is set for an additional bundle: the cluster may have objects that nothing here creates.
	Exists bool
	// Namespaces exist, or are created with the manifests.
	Namespaces []string
	// Objects are the objects in the bundle's manifests, Earlier the objects in the base's manifests.
	Objects, Earlier []Object
}

// An Object is an object of a manifest.
type Object struct {
	*manifests.Object
	// Default is the namespace of the manifest, for objects that name none.
	Default string
}

// Check returns the problems of the objects, in their order. Those with Maybe are warnings: the site
// may know better.
func (w World) Check() (problems []manifests.Problem) {
	c := w.checker()
	for _, o := range w.Objects {
		found := c.object(o)
		if c.newer {
			for i := range found {
				found[i].Maybe = true
			}
		}
		problems = append(problems, append(found, c.needs(o)...)...)
	}
	return problems
}

// A checker checks objects of one World.
type checker struct {
	World
	minor int
	// newer is set if the version is newer than the linked types and rules: it may accept more.
	newer bool
	// defined are the kinds of the CustomResourceDefinitions, and aggregated the groups of APIServices.
	defined    map[schema.GroupKind]*manifests.Definition
	aggregated []string
	names      map[reference]bool // of all objects
	warned     map[string]bool
	creates    creators
}

// newest is the minor version of the linked types and rules.
const newest = 37

func (w World) checker() *checker {
	c := &checker{World: w, defined: map[schema.GroupKind]*manifests.Definition{}, names: map[reference]bool{}, warned: map[string]bool{}}
	if v, err := version.ParseGeneric(w.Version); err == nil {
		c.minor = int(v.Minor())
	}
	c.newer = c.minor > newest
	for _, o := range slices.Concat(w.Earlier, w.Objects) {
		c.learn(o)
	}
	return c
}

// learn keeps what other objects may need.
func (c *checker) learn(o Object) {
	if d := o.Definition(); d != nil {
		c.defined[schema.GroupKind{Group: d.Group, Kind: d.Kind}] = d
	}
	spec, _ := o.Content["spec"].(map[string]any)
	if group, ok := spec["group"].(string); ok && o.GroupVersionKind().Group == aggregator && o.Kind == "APIService" {
		c.aggregated = append(c.aggregated, group)
	}
	c.creates.learn(o)
	c.names[reference{o.Kind, cmp.Or(o.Object.Namespace, o.Default, "default"), o.Name}] = true
	c.names[reference{o.Kind, "", o.Name}] = true
}

// GroupVersionKind returns the group, version and kind of an object.
func (o Object) GroupVersionKind() schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(o.APIVersion, o.Kind)
}

// problem describes a problem of a field of o. A path that leads to nothing is the path of what is missing.
func (o Object) problem(field, why, hint string) manifests.Problem {
	return manifests.Problem{Object: o.Object, Field: field, Why: why, Hint: hint}
}
