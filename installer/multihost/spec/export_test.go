package spec

import (
	"reflect"
	"slices"
)

// Fields returns the names of all fields of the file.
func Fields() (names []string) {
	var add func(t reflect.Type)
	add = func(t reflect.Type) {
		for t.Kind() == reflect.Slice || t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct {
			return
		}
		for name, f := range fieldsOf(t) {
			names = append(names, name)
			add(f.Type)
		}
	}
	add(reflect.TypeFor[document]())
	slices.Sort(names)
	return slices.Compact(names)
}
