package apply

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"airlift/installer/cluster"
	"airlift/installer/redact"
)

// A Difference is what applying a manifest does.
type Difference struct {
	Manifest string
	// Diff is the unified diff of all objects, "" if none is created or changed.
	Diff             string
	Created, Changed []string
	Kept             []string // fields that others have changed, and that are kept
	Hooks            []string // hooks that run: "pre-upgrade Job web/migrate"
	Failed           []string // objects that the API server would refuse, or whose difference it cannot compute
	// Version reports that another version of the manifest, or none, was applied.
	Version bool
}

// Any reports whether applying the manifest does anything.
func (d Difference) Any() bool {
	return d.Version || len(d.Created)+len(d.Changed)+len(d.Hooks)+len(d.Failed) > 0
}

// Diff asks the API server what applying the manifests would do, and changes nothing.
func (s *Applier) Diff(ctx context.Context, manifests []*Manifest) (list []Difference, err error) {
	inventory, err := ReadInventory(ctx, s.client.API)
	if err != nil {
		return nil, err
	}
	created := map[string]bool{} // namespaces
	for _, m := range manifests {
		created[m.Namespace] = true
		for _, o := range m.objects {
			if rank(o) == rankNamespace {
				created[o.GetName()] = true
			}
		}
	}
	for _, m := range manifests {
		d := Difference{Manifest: m.Name, Version: !m.is(inventory[m.Name])}
		for _, event := range s.wouldRun(m, inventory[m.Name]) {
			for _, h := range m.hooksFor(event) {
				d.Hooks = append(d.Hooks, event+" "+inventoryName(h.object, s.placeOf(m, h.object)))
			}
		}
		var text strings.Builder
		for _, o := range m.objects {
			if err := s.diffOne(ctx, m, o, manifests, created, &d, &text); err != nil {
				return nil, fmt.Errorf("comparing %s of manifest %q: %w", cluster.Describe(o), m.Name, err)
			}
		}
		d.Diff = text.String()
		list = append(list, d)
	}
	return list, nil
}

// wouldRun returns the events whose hooks applying the manifest runs.
func (s *Applier) wouldRun(m *Manifest, e Entry) []string {
	switch {
	case m.is(e):
		return e.Pending
	case m.undoes != "":
		return m.eventsOf(rollback)
	}
	return m.eventsOf(changeOf(e))
}

func (s *Applier) diffOne(ctx context.Context, m *Manifest, o *unstructured.Unstructured, manifests []*Manifest, created map[string]bool, d *Difference, text *strings.Builder) error {
	name := inventoryName(o, s.placeOf(m, o))
	write := func(before, after *unstructured.Unstructured) {
		maskSecrets(before, after)
		from, to := redact.Version{Name: "cluster/" + name}, redact.Version{Name: "file/" + name, Text: shownText(after)}
		if before == nil {
			from.Name = "/dev/null"
		} else {
			from.Text = shownText(before)
		}
		const lines = 3
		text.WriteString(redact.Diff(func(text []byte) []byte { return text }, from, to, lines))
	}
	resource, mapping, err := s.resource(o, m.Namespace)
	if meta.IsNoMatchError(err) {
		defined := slices.ContainsFunc(manifests, func(other *Manifest) bool { return other.defines(o) })
		if !defined {
			d.Failed = append(d.Failed, name+": the API server does not know its kind yet")
		}
		d.Created = append(d.Created, name)
		write(nil, o.DeepCopy())
		return nil
	}
	if err != nil {
		return err
	}
	namespace := ""
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		namespace = namespaceOf(o, m.Namespace)
	}
	before, after, kept, err := s.merge(ctx, resource, o, namespace, true)
	for _, field := range kept {
		d.Kept = append(d.Kept, name+": "+field)
	}
	switch {
	case err == nil && before == nil, apierrors.IsNotFound(err) && created[namespace]:
		d.Created = append(d.Created, name)
		want := o.DeepCopy()
		want.SetNamespace(namespace)
		write(nil, want)
	case err != nil && ctx.Err() != nil:
		return err
	case err != nil:
		d.Failed = append(d.Failed, name+": "+err.Error())
	case !sameObject(before, after):
		d.Changed = append(d.Changed, name)
		write(before, after)
	}
	return nil
}

// defines reports whether the manifest has the definition of an object's kind.
func (m *Manifest) defines(o *unstructured.Unstructured) bool {
	gvk := o.GroupVersionKind()
	return slices.ContainsFunc(m.objects, func(crd *unstructured.Unstructured) bool {
		group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
		kind, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "kind")
		return isCRD(crd) && group == gvk.Group && kind == gvk.Kind
	})
}

// shownText returns an object as YAML, without what only the API server and controllers write.
func shownText(o *unstructured.Unstructured) []byte {
	content := maps.Clone(o.Object)
	delete(content, "status")
	if metadata, ok := content["metadata"].(map[string]any); ok {
		metadata = maps.Clone(metadata)
		for _, field := range []string{"resourceVersion", "managedFields", "generation", "uid", "creationTimestamp", "selfLink"} {
			delete(metadata, field)
		}
		content["metadata"] = metadata
	}
	data, err := yaml.Marshal(content)
	if err != nil { // it was JSON
		return []byte(err.Error())
	}
	return data
}

func isSecret(o *unstructured.Unstructured) bool {
	return o.GroupVersionKind().GroupKind().String() == "Secret"
}

// maskSecrets replaces the values of Secrets, so that a difference shows which have changed, and none of them. before may be nil.
func maskSecrets(before, after *unstructured.Unstructured) {
	if !isSecret(after) {
		return
	}
	const applied = "kubectl.kubernetes.io/last-applied-configuration" // it has the values, too
	values := func(o *unstructured.Unstructured) map[string]any {
		found := map[string]any{}
		if o == nil {
			return found
		}
		for _, field := range []string{"data", "stringData"} {
			list, _ := o.Object[field].(map[string]any)
			for key, value := range list {
				found[field+" "+key] = value
			}
		}
		if value, ok := o.GetAnnotations()[applied]; ok {
			found["annotation "+applied] = value
		}
		return found
	}
	was, is := values(before), values(after)
	mask := func(o *unstructured.Unstructured, other map[string]any, changed string) {
		if o == nil {
			return
		}
		for name, value := range values(o) {
			text := "(secret)"
			if otherValue, ok := other[name]; ok && otherValue != value {
				text = changed
			}
			if field, key, _ := strings.Cut(name, " "); field == "annotation" {
				annotations := o.GetAnnotations()
				annotations[key] = text
				o.SetAnnotations(annotations)
			} else {
				o.Object[field].(map[string]any)[key] = text
			}
		}
	}
	mask(before, is, "(secret, before)")
	mask(after, was, "(secret, after)")
}
