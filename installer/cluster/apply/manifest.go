package apply

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"airlift/installer/cluster"
	"airlift/internal/documents"
	"airlift/internal/fault"
)

// A Manifest is one of the site's own manifests: objects that init applies.
type Manifest struct {
	Name, Chart, SHA256 string
	// Namespace is the namespace of objects that name none.
	Namespace string
	// Bundle is the sha256 of the manifest.json of the file that it is from, and File the name of that file, for people.
	Bundle, File string
	// Kubernetes is the version for which it was rendered.
	Kubernetes string
	// SiteImages are the references of all images of the site in that file.
	SiteImages []string

	objects []*unstructured.Unstructured // in the order in which they are applied
	hooks   []*hook                      // of a chart
	data    []byte
	undoes  string // the run that applying this version undoes
}

// fixManifest is the hint for a manifest that cannot be applied as it is.
const fixManifest = "correct the manifest and build the bundle again"

// Parse decodes a manifest: YAML documents with one object or a list each.
// Objects that others depend on come first. Objects of a chart that are hooks are kept apart.
func Parse(m Manifest, data []byte) (*Manifest, error) {
	list, errs := documents.Read(data)
	if len(errs) > 0 {
		return nil, fault.New(fault.Bundle, "reading manifest %q: document %d: %w", m.Name, errs[0].Document, errs[0]).Hint(fixManifest)
	}
	for i, d := range list {
		if err := m.add(d.JSON); err != nil {
			return nil, fault.New(fault.Bundle, "reading manifest %q: document %d: %w", m.Name, i+1, err).Hint(fixManifest)
		}
	}
	m.data = data
	m.objects = slices.DeleteFunc(m.objects, func(o *unstructured.Unstructured) bool {
		h, is := hookOf(o)
		if !is || m.Chart == "" {
			return false
		}
		if len(h.events) > 0 { // a hook for nothing but tests is left out
			m.hooks = append(m.hooks, h)
		}
		return true
	})
	slices.SortStableFunc(m.objects, func(a, b *unstructured.Unstructured) int { return rank(a) - rank(b) })
	slices.SortStableFunc(m.hooks, compareHooks)
	return &m, nil
}

// add adds the object, or the objects of the list, in a document. A document may be empty.
func (m *Manifest) add(document []byte) error {
	if slices.Contains([]string{"null", "{}"}, string(document)) {
		return nil
	}
	object, _, err := unstructured.UnstructuredJSONScheme.Decode(document, nil, nil)
	if err != nil {
		return err
	}
	switch o := object.(type) {
	case *unstructured.UnstructuredList:
		for i := range o.Items {
			if err := m.addObject(&o.Items[i]); err != nil {
				return fmt.Errorf("item %d: %w", i+1, err)
			}
		}
		return nil
	case *unstructured.Unstructured:
		return m.addObject(o)
	}
	return fmt.Errorf("it is a %T, not an object", object)
}

func (m *Manifest) addObject(o *unstructured.Unstructured) error {
	switch {
	case o.GetAPIVersion() == "":
		return fmt.Errorf("%s has no apiVersion", cluster.Describe(o))
	case o.GetName() == "":
		return fmt.Errorf("a %s has no metadata.name", o.GetKind())
	}
	// Fields that only the API server writes. An object that was copied from a cluster has them.
	for _, field := range []string{"managedFields", "resourceVersion", "uid", "creationTimestamp", "generation", "selfLink"} {
		unstructured.RemoveNestedField(o.Object, "metadata", field)
	}
	delete(o.Object, "status")
	m.objects = append(m.objects, o)
	return nil
}

func isCRD(o *unstructured.Unstructured) bool {
	return o.GetKind() == "CustomResourceDefinition" && o.GroupVersionKind().Group == "apiextensions.k8s.io"
}

// Objects returns how many objects the manifest has, without hooks.
func (m *Manifest) Objects() int { return len(m.objects) }
