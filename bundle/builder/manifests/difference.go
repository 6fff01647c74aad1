package manifests

import (
	"maps"
	"reflect"
)

// Difference returns the path of the first field in which two objects differ, or "".
func Difference(a, b *Object) string {
	p, ok := difference(nil, a.Content, b.Content)
	if !ok {
		return ""
	}
	return p.String()
}

// Conflict returns the path of the first field in which two definitions of one object differ, or
// "". Namespaces are not compared: a definition may get its namespace from its manifest, and the
// API ignores the namespace of a cluster-scoped object.
func Conflict(a, b *Object) string {
	return Difference(withoutNamespace(a), withoutNamespace(b))
}

func withoutNamespace(o *Object) *Object {
	metadata, _ := o.Content["metadata"].(map[string]any)
	metadata, content := maps.Clone(metadata), maps.Clone(o.Content)
	delete(metadata, "namespace")
	content["metadata"] = metadata
	return &Object{Content: content}
}

func difference(p path, a, b any) (path, bool) {
	switch x := a.(type) {
	case map[string]any:
		y, ok := b.(map[string]any)
		if !ok {
			return p, true
		}
		for _, k := range sortedKeys(x) {
			if _, ok := y[k]; !ok {
				return p.with(k), true
			}
			if at, ok := difference(p.with(k), x[k], y[k]); ok {
				return at, true
			}
		}
		for _, k := range sortedKeys(y) {
			if _, ok := x[k]; !ok {
				return p.with(k), true
			}
		}
		return nil, false
	case []any:
		y, ok := b.([]any)
		if !ok || len(x) != len(y) {
			return p, true
		}
		for i := range x {
			if at, ok := difference(p.with(i), x[i], y[i]); ok {
				return at, true
			}
		}
		return nil, false
	}
	return p, !reflect.DeepEqual(a, b)
}
