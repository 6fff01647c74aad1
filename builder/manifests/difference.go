package manifests

import (
	"maps"
	"reflect"
	"slices"
)

// Difference returns the path of the first field in which two objects differ, or "".
func Difference(a, b *Object) string { return difference(nil, a.Content, b.Content).String() }

// Conflict returns the path of the first field in which two definitions of one object differ, or
// "". Namespaces are not compared: a definition may get its namespace from its manifest, and the
// API ignores the namespace of a cluster-scoped object.
func Conflict(a, b *Object) string {
	return difference(nil, withoutNamespace(a), withoutNamespace(b)).String()
}

func withoutNamespace(o *Object) map[string]any {
	metadata, _ := o.Content["metadata"].(map[string]any)
	metadata, content := maps.Clone(metadata), maps.Clone(o.Content)
	delete(metadata, "namespace")
	content["metadata"] = metadata
	return content
}

// difference returns nil for equal objects and lists.
func difference(p path, a, b any) path {
	x, isMap := a.(map[string]any)
	y, both := b.(map[string]any)
	if isMap && both {
		for _, k := range slices.Sorted(maps.Keys(x)) {
			if _, ok := y[k]; !ok {
				return p.with(k)
			}
			if at := difference(p.with(k), x[k], y[k]); at != nil {
				return at
			}
		}
		for _, k := range slices.Sorted(maps.Keys(y)) {
			if _, ok := x[k]; !ok {
				return p.with(k)
			}
		}
		return nil
	}
	list, isList := a.([]any)
	other, both := b.([]any)
	if isList && both && len(list) == len(other) {
		for i := range list {
			if at := difference(p.with(i), list[i], other[i]); at != nil {
				return at
			}
		}
		return nil
	}
	if reflect.DeepEqual(a, b) {
		return nil
	}
	return p
}
