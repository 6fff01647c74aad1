package config

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"airlift/internal/documents"
)

// check records everything that would be lost when the documents are decoded into
// their types. Documents of unknown groups are errors or warnings.
func (s *source) check(unknownIsError bool) {
	for _, d := range s.docs {
		known := len(s.problems)
		t := s.typeOf(d)
		switch {
		case t != nil:
			d.of = t
			w := &walker{source: s, doc: d}
			if d.group == kubeadmGroup {
				w.version = d.version
			}
			w.walk(t, d.value, place{d.kind, d.Node, d.Line})
			d.bad = len(s.problems) > known
		case len(s.problems) > known:
			d.bad = true
		case unknownIsError:
			s.addf(s.lineOf(d, "kind"), "%s of %s/%s is not a kind that kubeadm knows", d.kind, d.group, d.version)
		default:
			s.warnf(d.Line, "%s of %s/%s does not apply to this command and is ignored", d.kind, d.group, d.version)
		}
	}
}

// decode decodes the document of that kind if there is one without errors, and
// records the decoder's own errors. It reports whether into was filled.
func (s *source) decode(kind string, into any) bool {
	d := s.find(kind)
	if d == nil || d.of == nil || d.bad {
		return false
	}
	data, err := json.Marshal(d.value)
	if err != nil {
		s.addf(d.Line, "%s: %v", d.kind, err)
		return false
	}
	strict, err := kjson.UnmarshalStrict(data, into)
	if err != nil {
		strict = append(strict, err)
	}
	for _, e := range strict {
		s.addf(d.Line, "%s: %v", d.kind, e)
	}
	return len(strict) == 0
}

// walker compares a document with the type that it is decoded into.
type walker struct {
	*source
	doc     *document
	version string // of kubeadm's API; empty for other groups
}

// place is where a value was written.
type place struct {
	path string
	node *documents.Node // nil when it is not known
	line int
}

func (w *walker) walk(t reflect.Type, value any, at place) {
	w.lines[at.path] = at.line
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if value == nil { // null means the default
		return
	}
	if t == reflect.TypeFor[wireArgs]() {
		if _, isMap := value.(map[string]any); isMap != (w.version == "v1beta3") {
			w.wrongArgs(isMap, at)
			return
		}
		if t = reflect.TypeFor[[]wireArg](); w.version == "v1beta3" {
			t = reflect.TypeFor[map[string]string]()
		}
	}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		w.leaf(t, value, at)
		return
	}
	switch t.Kind() {
	case reflect.Interface:
	case reflect.Struct:
		m, ok := value.(map[string]any)
		if !ok {
			w.addf(at.line, "%s is %s and must be a mapping with the fields %s", at.path, described(at.node, value), strings.Join(firstNames(w.names(t)), ", "))
			return
		}
		fields := fieldsOf(t)
		for _, name := range keys(m) {
			to := w.child(at, name)
			field, ok := fields[name]
			switch {
			case !ok:
				w.unknown(t, name, to)
			case !within(field.Tag.Get("kubeadm"), w.version) && w.version != "":
				w.misplaced(field.Tag.Get("kubeadm"), name, to)
			default:
				w.walk(field.Type, m[name], to)
			}
		}
	case reflect.Map:
		m, ok := value.(map[string]any)
		if !ok {
			w.addf(at.line, "%s is %s and must be a mapping of names to values", at.path, described(at.node, value))
			return
		}
		for _, name := range keys(m) {
			w.walk(t.Elem(), m[name], w.child(at, name))
		}
	case reflect.Slice:
		list, ok := value.([]any)
		if !ok {
			w.addf(at.line, "%s is %s and must be a list: write [%s] or one item a line after dashes", at.path, described(at.node, value), example(t.Elem()))
			return
		}
		for i, item := range list {
			w.walk(t.Elem(), item, w.item(at, i))
		}
	default:
		w.leaf(t, value, at)
	}
}

func (w *walker) leaf(t reflect.Type, value any, at place) {
	data, err := json.Marshal(value)
	if err == nil {
		err = kjson.UnmarshalCaseSensitivePreserveInts(data, reflect.New(t).Interface())
	}
	if err == nil {
		return
	}
	what := described(at.node, value)
	switch {
	case t == reflect.TypeFor[metav1.Duration]():
		w.addf(at.line, `%s is %s and must be a duration such as 4m0s, 90s or 8760h`, at.path, what)
	case t == reflect.TypeFor[metav1.Time]():
		w.addf(at.line, `%s is %s and must be a time such as "2030-01-02T15:04:05Z"`, at.path, what)
	case t.Kind() == reflect.String && isScalar(value):
		w.addf(at.line, "%s is %s and must be a string: put it in quotes, %q", at.path, what, documents.Written(at.node, value))
	case t.Kind() == reflect.String:
		w.addf(at.line, "%s is %s and must be a string", at.path, what)
	case t.Kind() == reflect.Bool:
		w.addf(at.line, "%s is %s and must be true or false, without quotes", at.path, what)
	case t.Kind() >= reflect.Int && t.Kind() <= reflect.Uint64:
		w.addf(at.line, "%s is %s and must be a whole number of at most %d bits, without quotes", at.path, what, t.Bits())
	default:
		w.addf(at.line, "%s is %s: %v", at.path, what, err)
	}
}

func isScalar(value any) bool {
	switch value.(type) {
	case map[string]any, []any:
		return false
	}
	return true
}

// fieldsOf returns a struct's fields by the names they have in JSON, including the fields of
// embedded structs.
func fieldsOf(t reflect.Type) map[string]reflect.StructField {
	fields := map[string]reflect.StructField{}
	for f := range fieldsIn(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" {
			for inner, field := range fieldsOf(f.Type) {
				if _, own := fields[inner]; !own {
					fields[inner] = field
				}
			}
		} else if f.IsExported() && name != "-" {
			fields[cmp.Or(name, f.Name)] = f
		}
	}
	return fields
}

func fieldsIn(t reflect.Type) func(func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		for i := range t.NumField() {
			if !yield(t.Field(i)) {
				return
			}
		}
	}
}

// child is the place of a field in a mapping, or the mapping's own place if the
// library for line numbers does not find the key.
func (w *walker) child(at place, name string) place {
	to := place{at.path + "." + name, nil, at.line}
	if key, value := documents.Field(at.node, name); key != nil {
		to.node, to.line = value, key.Line
	}
	return to
}

func (w *walker) item(at place, i int) place {
	to := place{fmt.Sprintf("%s[%d]", at.path, i), documents.Item(at.node, i), at.line}
	if to.node != nil {
		to.line = to.node.Line
	}
	return to
}
