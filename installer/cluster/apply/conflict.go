package apply

import (
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// leaveOut removes from want the fields in a conflict: another manager has set them to another
// value. It returns a description of each removed field; none if it finds no such field.
func leaveOut(want, have *unstructured.Unstructured, conflict error) (fields []string) {
	status := apierrors.APIStatus(nil)
	if !errors.As(conflict, &status) || status.Status().Details == nil {
		return nil
	}
	var names []string
	for _, c := range status.Status().Details.Causes {
		if c.Type == metav1.CauseTypeFieldManagerConflict {
			names = append(names, c.Field)
		}
	}
	for _, m := range have.GetManagedFields() {
		if m.FieldsV1 == nil || m.Manager == FieldManager && m.Operation == metav1.ManagedFieldsOperationApply {
			continue
		}
		set := &fieldpath.Set{}
		if err := set.FromJSON(m.FieldsV1.GetRawReader()); err != nil {
			continue
		}
		set.Iterate(func(p fieldpath.Path) {
			i := slices.Index(names, p.String())
			if i < 0 {
				return
			}
			applied, ok := lookUp(want.Object, p)
			if !ok {
				return
			}
			theirs, _ := lookUp(have.Object, p)
			remove(want.Object, p)
			names = slices.Delete(names, i, i+1)
			shown := values(theirs, applied)
			if isSecret(want) {
				shown = ""
			}
			fields = append(fields, fmt.Sprintf("%s was changed by %q and is kept%s", p.String(), m.Manager, shown))
		})
	}
	if len(names) > 0 {
		return nil
	}
	slices.Sort(fields)
	return fields
}

// values describes the values of a field in the cluster and in the manifest, if both are short.
func values(have, want any) string {
	const short = 60
	h, w := fmt.Sprint(have), fmt.Sprint(want)
	for _, v := range []any{have, want} {
		switch v.(type) {
		case map[string]any, []any, nil:
			return ""
		}
	}
	if len(h) > short || len(w) > short {
		return ""
	}
	return fmt.Sprintf(": it is %s, and %s in the manifest", h, w)
}

// lookUp returns the value at a path.
func lookUp(v any, path fieldpath.Path) (any, bool) {
	for _, element := range path {
		switch parent := v.(type) {
		case map[string]any:
			if element.FieldName == nil {
				return nil, false
			}
			child, ok := parent[*element.FieldName]
			if !ok {
				return nil, false
			}
			v = child
		case []any:
			i := indexIn(parent, element)
			if i < 0 {
				return nil, false
			}
			v = parent[i]
		default:
			return nil, false
		}
	}
	return v, true
}

// remove removes the value at a path, which exists.
func remove(root map[string]any, path fieldpath.Path) {
	last := path[len(path)-1]
	above, _ := lookUp(root, path[:len(path)-1])
	switch parent := above.(type) {
	case map[string]any:
		delete(parent, *last.FieldName)
	case []any:
		i := indexIn(parent, last)
		shorter := slices.Delete(slices.Clone(parent), i, i+1)
		list := path[len(path)-2] // the field with the list
		if holder, _ := lookUp(root, path[:len(path)-2]); list.FieldName != nil {
			if holder, ok := holder.(map[string]any); ok {
				holder[*list.FieldName] = shorter
			}
		}
	}
}

// indexIn returns the index of a path's element in a list, or -1.
func indexIn(list []any, e fieldpath.PathElement) int {
	return slices.IndexFunc(list, func(item any) bool {
		switch {
		case e.Value != nil:
			return value.Equals(value.NewValueInterface(item), *e.Value)
		case e.Key != nil:
			fields, ok := item.(map[string]any)
			for _, key := range *e.Key {
				// A key that the manifest leaves out has its default value, such as protocol.
				have, set := fields[key.Name]
				ok = ok && (!set || value.Equals(value.NewValueInterface(have), key.Value))
			}
			return ok
		}
		return false
	})
}
