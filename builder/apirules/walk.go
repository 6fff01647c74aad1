package apirules

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"airlift/builder/manifests"
	"airlift/internal/fault"
)

// A walk compares the values of an object with the types of their fields.
type walk struct {
	o        Object
	minor    int
	newer    bool
	problems []manifests.Problem
}

func (w *walk) add(path, why, hint string) {
	w.problems = append(w.problems, w.o.problem(path, why, hint))
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

// value compares a value with a type. path is where it is.
func (w *walk) value(t reflect.Type, value any, path string) {
	if value == nil {
		return
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if reflect.PointerTo(t).Implements(unmarshaler) {
		w.leaf(t, value, path)
		return
	}
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		fields, ok := value.(map[string]any)
		if !ok {
			w.wrong(path, value, "an object")
			return
		}
		if t.Kind() == reflect.Struct {
			w.fields(t, fields, path)
			return
		}
		for _, key := range slices.Sorted(maps.Keys(fields)) {
			w.value(t.Elem(), fields[key], fmt.Sprintf("%s[%s]", path, key))
		}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			w.leaf(t, value, path)
			return
		}
		items, ok := value.([]any)
		if !ok {
			w.wrong(path, value, "a list")
			return
		}
		for i, item := range items {
			w.value(t.Elem(), item, fmt.Sprintf("%s[%d]", path, i))
		}
	default:
		w.leaf(t, value, path)
	}
}

// fields compares the fields of an object with the fields of a struct.
func (w *walk) fields(t reflect.Type, fields map[string]any, path string) {
	known := fieldsOf(t)
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		at := strings.TrimPrefix(path+"."+name, ".")
		r, listed := versionsOf(t, name)
		f, ok := known[name]
		switch {
		case listed && w.minor < r.first && !w.newer:
			w.add(at, fmt.Sprintf("the field came with v1.%d: the API server of v1.%d does not have it", r.first, w.minor), "remove it, or build a bundle of a newer version of Kubernetes")
		case ok:
			w.value(f, fields[name], at)
		case listed && w.minor <= r.last: // a field that the linked types no longer have
		default:
			hint := "remove it"
			if like := fault.Nearest(name, slices.Collect(maps.Keys(known))); like != "" {
				hint = "write " + like
			}
			w.add(at, "unknown field", hint)
		}
	}
}

// leaf decodes a value that has no parts.
func (w *walk) leaf(t reflect.Type, value any, path string) {
	text, err := json.Marshal(value)
	if err == nil {
		err = json.Unmarshal(text, reflect.New(t).Interface())
	}
	if err == nil {
		return
	}
	hint := ""
	_, isText := value.(string)
	switch number := t.Kind() >= reflect.Int && t.Kind() <= reflect.Float64; {
	case isText && (number || t.Kind() == reflect.Bool):
		hint = "write it without quotes"
	case !isText && t.Kind() == reflect.String:
		hint = "write it in quotes" + w.o.Written(path)
	}
	if t.Kind() == reflect.Slice {
		w.add(path, "the value is not base64", "encode it: base64 -w0 FILE; or write the text into stringData")
		return
	}
	if reflect.PointerTo(t).Implements(unmarshaler) && !strings.HasPrefix(err.Error(), "json: ") {
		w.add(path, err.Error(), hint)
		return
	}
	w.wrong(path, value, article(t))
	w.problems[len(w.problems)-1].Hint = hint
}

// article names a type in a sentence.
func article(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	case reflect.Int32:
		return "a number of 32 bits"
	case reflect.Int, reflect.Int64:
		return "a whole number"
	}
	return "a valid " + t.Name()
}

func (w *walk) wrong(path string, value any, want string) {
	have := "a list"
	switch v := value.(type) {
	case map[string]any:
		have = "an object"
	case string:
		have = fmt.Sprintf("%q", v)
		if w.o.Kind == "Secret" {
			have = "a string"
		}
	case bool, int64, float64:
		have = fmt.Sprint(v)
	}
	w.add(path, fmt.Sprintf("%s is not %s", have, want), "")
}

// fieldsOf returns the types of the fields of a struct in JSON, also of embedded structs.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	all := map[string]reflect.Type{}
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-":
		case name == "" && (f.Anonymous || options == "inline"):
			inner := f.Type
			if inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			maps.Copy(all, fieldsOf(inner))
		case name != "":
			all[name] = f.Type
		}
	}
	return all
}
