// Package convert writes a cluster.yaml from the file of another tool.
package convert

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"airlift/internal/documents"
	"airlift/internal/documents/strict"
)

// A Left is a part of the file that cluster.yaml has no field for, or that needs a person.
type Left struct {
	Line  int
	Field string
	Hint  string
}

func (l Left) String() string { return fmt.Sprintf("%d: %s: %s", l.Line, l.Field, l.Hint) }

// A source is a file of which each value is used or left.
type source struct {
	used map[string]bool // by path
	left []Left
}

func (s *source) leave(line int, field, hint string) {
	s.left = append(s.left, Left{line, field, hint})
}

// A value is a value of the file; is is nil if the file does not have it.
type value struct {
	*source
	is any
	strict.Place
}

// root returns a document, with a path in front of its values.
func (s *source) root(d documents.Document, path string) (value, error) {
	v := value{source: s, Place: strict.Place{Path: path, Node: d.Node, Line: d.Line}}
	decoder := json.NewDecoder(bytes.NewReader(d.JSON))
	decoder.UseNumber()
	return v, decoder.Decode(&v.is)
}

// field returns the value at a path of fields.
func (v value) field(names ...string) value {
	for _, name := range names {
		mapping, _ := v.is.(map[string]any)
		v = value{v.source, mapping[name], v.Place.Field(name)}
	}
	return v
}

// fields returns all values of a mapping, by name.
func (v value) fields() []value {
	mapping, _ := v.is.(map[string]any)
	var list []value
	for _, name := range slices.Sorted(maps.Keys(mapping)) {
		list = append(list, value{v.source, mapping[name], v.Place.Field(name)})
	}
	return list
}

// items returns the values of a list.
func (v value) items() (list []value) {
	all, _ := v.is.([]any)
	for i, item := range all {
		list = append(list, value{v.source, item, v.Item(i)})
	}
	return list
}

// scalar returns a text, a number or a boolean as it is written, and does not use it.
func (v value) scalar() string {
	switch v.is.(type) {
	case string, json.Number, bool:
		return documents.Written(v.Node, v.is)
	}
	return ""
}

// use marks a value as used, with all that is in it.
func (v value) use() {
	if v.is != nil {
		v.used[v.Path] = true
	}
}

// text uses a text, a number or a boolean.
func (v value) text() string {
	text := v.scalar()
	if text == "" {
		return ""
	}
	v.use()
	if strings.Contains(text, "$") {
		v.leave(v.Line, v.Path, "k0sctl replaces $ from the environment: write the value")
	}
	return text
}

// only uses a value if it is one of these.
func (v value) only(texts ...string) bool {
	if !slices.Contains(texts, v.scalar()) {
		return false
	}
	v.use()
	return true
}

// on uses a boolean.
func (v value) on() bool {
	on, ok := v.is.(bool)
	if ok {
		v.use()
	}
	return on
}

// list uses the texts of a list.
func (v value) list() (texts []string) {
	for _, item := range v.items() {
		if text := item.text(); text != "" {
			texts = append(texts, text)
		}
	}
	return texts
}

// rest leaves what was not used: the largest parts of which nothing was.
func (v value) rest(hint func(path string) string) {
	parts := slices.Concat(v.fields(), v.items())
	_, isText := v.is.(string)
	switch {
	case v.is == nil || v.used[v.Path] || len(parts) == 0 && v.scalar() == "" && !isText: // it is empty
	case len(parts) > 0 && slices.ContainsFunc(slices.Collect(maps.Keys(v.used)), v.has):
		for _, part := range parts {
			part.rest(hint)
		}
	default:
		v.leave(v.Line, cmp.Or(v.Path, "the document"), hint(v.Path))
	}
}

// has reports whether a path is below the value.
func (v value) has(path string) bool {
	rest, below := strings.CutPrefix(path, v.Path)
	return below && rest != "" && (v.Path == "" || rest[0] == '.' || rest[0] == '[')
}

// plain returns a decoded value with numbers that YAML writes as numbers.
func plain(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		n, _ := v.Float64() // it was a number of JSON
		return n
	case map[string]any:
		to := map[string]any{}
		for name, item := range v {
			to[name] = plain(item)
		}
		return to
	case []any:
		to := make([]any, len(v))
		for i, item := range v {
			to[i] = plain(item)
		}
		return to
	}
	return v
}
