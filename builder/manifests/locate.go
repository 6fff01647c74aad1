package manifests

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"airlift/internal/documents"
)

// locate follows a field's path in the object as far as it leads to a value. It reads the paths of
// Kubernetes' validation (spec.containers[0].image, metadata.labels[a/b]) and of server-side apply
// (.spec.containers[name="a"].image).
func (o *Object) locate(field string) path {
	p, _ := follow(nil, o.Content, strings.TrimPrefix(field, "."))
	return p
}

// follow returns the longest path below value that the text begins with, and the rest of the text.
func follow(p path, value any, text string) (best path, rest string) {
	best, rest = p, text
	try := func(element, child any, form string) {
		after, ok := strings.CutPrefix(text, form)
		if !ok || after != "" && after[0] != '.' && after[0] != '[' {
			return
		}
		if at, left := follow(p.with(element), child, strings.TrimPrefix(after, ".")); len(left) < len(rest) {
			best, rest = at, left
		}
	}
	switch v := value.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) { // a name may have dots
			for _, form := range []string{name, "[" + name + "]", fmt.Sprintf("[%q]", name)} {
				try(name, v[name], form)
			}
		}
	case []any:
		key, _, _ := strings.Cut(text, "]")
		for i, item := range v {
			try(i, item, fmt.Sprintf("[%d]", i))
			try(i, item, "[="+jsonText(item)+"]")
			if fields, ok := item.(map[string]any); ok && hasAll(fields, strings.TrimPrefix(key, "[")) {
				try(i, item, key+"]")
			}
		}
	}
	return best, rest
}

// hasAll reports whether an item has the values of server-side apply's key: containerPort=80,protocol="TCP".
// A value that it does not have is a default.
func hasAll(fields map[string]any, key string) bool {
	found := false
	for pair := range strings.SplitSeq(key, ",") {
		name, want, ok := strings.Cut(pair, "=")
		have, has := fields[name]
		if !ok || has && jsonText(have) != want {
			return false
		}
		found = found || has
	}
	return found
}

// Locate returns the path of a field as far as it leads to a value.
func (o *Object) Locate(field string) string {
	return o.locate(field).String()
}

// PositionOf returns the file and the line of a field, or of what should have it.
func (o *Object) PositionOf(field string) string {
	line, n := o.Line, o.node
	for _, e := range o.locate(field) {
		switch e := e.(type) {
		case int:
			if n = documents.Item(n, e); n != nil {
				line = n.Line
			}
		case string:
			key, value := documents.Field(n, e)
			if n = value; key != nil {
				line = key.Line
			}
		}
	}
	if o.Line == 0 {
		line = 0
	}
	return position(o.File, line)
}

// Written continues a hint with the scalar of a field, in quotes.
func (o *Object) Written(field string) string {
	return o.written(o.locate(field)...)
}

// PodSpec returns the pod's spec in a workload and its path, or nil for another object.
func (o *Object) PodSpec() (spec map[string]any, field string) {
	p := podPath(o)
	if p == nil {
		return nil, ""
	}
	return at(o.Content, p), p.String()
}
