package manifests

import (
	"encoding/json"
	"strconv"
	"strings"

	"airlift/internal/documents"
)

// locate follows a field's path in the object as far as it leads to a value. It reads the paths of
// Kubernetes' validation (spec.containers[0].image, metadata.labels[a/b]) and of server-side apply
// (.spec.containers[name="a"].image).
func (o *Object) locate(field string) (p path, rest string) {
	var value any = o.Content
	rest = field
	for rest != "" {
		var element any
		var next string
		switch v := value.(type) {
		case map[string]any:
			element, next = keyAt(v, rest)
		case []any:
			element, next = itemAt(v, rest)
		}
		switch e := element.(type) {
		case string:
			value = value.(map[string]any)[e]
		case int:
			value = value.([]any)[e]
		default:
			return p, rest
		}
		p, rest = p.with(element), next
	}
	return p, ""
}

// keyAt returns the key of an object with which a path begins, and the rest of the path.
func keyAt(fields map[string]any, field string) (key any, rest string) {
	if inner, after, ok := bracket(field); ok {
		for _, name := range []string{inner, unquoted(inner)} {
			if _, ok := fields[name]; ok {
				return name, after
			}
		}
		return nil, ""
	}
	field = strings.TrimPrefix(field, ".")
	best := ""
	for name := range fields { // a name may have dots
		after, ok := strings.CutPrefix(field, name)
		if ok && (after == "" || after[0] == '.' || after[0] == '[') && (key == nil || len(name) > len(best)) {
			key, best, rest = name, name, after
		}
	}
	return key, rest
}

// itemAt returns the index of a list's item with which a path begins, and the rest of the path.
func itemAt(items []any, field string) (index any, rest string) {
	inner, after, ok := bracket(field)
	if !ok {
		return nil, ""
	}
	if i, err := strconv.Atoi(inner); err == nil && i < len(items) {
		return i, after
	}
	for i, item := range items {
		if fields, ok := item.(map[string]any); ok && hasAll(fields, inner) || "="+jsonText(item) == inner {
			return i, after
		}
	}
	return nil, ""
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

// bracket returns the text in the brackets with which a path begins, and the rest of the path.
func bracket(field string) (inner, rest string, ok bool) {
	if !strings.HasPrefix(field, "[") {
		return "", "", false
	}
	quoted := false
	for i, r := range field {
		switch {
		case r == '"':
			quoted = !quoted
		case r == ']' && !quoted:
			return field[1:i], field[i+1:], true
		}
	}
	return "", "", false
}

func unquoted(s string) string {
	var text string
	if json.Unmarshal([]byte(s), &text) != nil {
		return s
	}
	return text
}

// Locate returns the path of a field as far as it leads to a value.
func (o *Object) Locate(field string) string {
	p, _ := o.locate(field)
	return p.String()
}

// PositionOf returns the file and the line of a field, or of what should have it.
func (o *Object) PositionOf(field string) string {
	p, _ := o.locate(field)
	line, n := o.Line, o.node
	for _, e := range p {
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
	p, _ := o.locate(field)
	return o.written(p...)
}

// PodSpec returns the pod's spec in a workload and its path, or nil for another object.
func (o *Object) PodSpec() (spec map[string]any, field string) {
	p := podPath(o)
	if p == nil {
		return nil, ""
	}
	return at(o.Content, p), p.String()
}
