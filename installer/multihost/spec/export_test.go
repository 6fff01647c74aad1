package spec

import (
	"reflect"
	"slices"

	"airlift/internal/documents/strict"
)

// Fields returns the names of all fields of the file.
func Fields() (names []string) {
	walk(reflect.TypeFor[document](), func(name string, _ reflect.StructField) { names = append(names, name) })
	slices.Sort(names)
	return slices.Compact(names)
}

// WithoutRule returns the names of the fields whose values, or whose names in a mapping, have no rule.
func WithoutRule() (names []string) {
	walk(reflect.TypeFor[document](), func(name string, f reflect.StructField) {
		has := func(tag string) bool { return rules[f.Tag.Get(tag)] != nil }
		switch of := f.Type; {
		case of.Kind() == reflect.Int && !slices.Contains([]string{"port", "count"}, f.Tag.Get("is")),
			(of.Kind() == reflect.String || of == reflect.TypeFor[[]string]()) && !has("is"),
			of.Kind() == reflect.Map && !(has("is") && has("names")):
			names = append(names, name)
		}
	})
	return names
}

// walk calls see for each field below a type.
func walk(t reflect.Type, see func(name string, f reflect.StructField)) {
	for t.Kind() == reflect.Slice || t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return
	}
	for name, f := range strict.Fields(t) {
		see(name, f)
		walk(f.Type, see)
	}
}

// Uncommented returns the example with all fields.
func Uncommented() string { return commented.ReplaceAllString(exampleFile, "$1") }
