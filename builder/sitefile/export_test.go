package sitefile

import (
	"reflect"
	"slices"

	"airlift/internal/documents/strict"
)

// Fields lists the names of the fields of all mappings.
func Fields() (names []string) {
	names = []string{"apiVersion", "kind"}
	var add func(t reflect.Type)
	add = func(t reflect.Type) {
		for t.Kind() == reflect.Slice || t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct {
			return
		}
		for name, f := range strict.Fields(t) {
			names = append(names, name)
			add(f.Type)
		}
	}
	add(reflect.TypeFor[document]())
	slices.Sort(names)
	return slices.Compact(names)
}
