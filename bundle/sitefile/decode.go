package sitefile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"airlift/documents"
	"airlift/fault"
)

// types are the mappings of a document, by the names that the decoder's errors have.
var types = map[string]reflect.Type{}

func init() {
	for _, t := range []reflect.Type{reflect.TypeFor[document](), reflect.TypeFor[componentVersions](), reflect.TypeFor[manifest](),
		reflect.TypeFor[chart](), reflect.TypeFor[file](), reflect.TypeFor[unit]()} {
		types[t.String()] = t
	}
}

// decode reads a document: one, without unknown fields, duplicate keys or empty list items.
func (r *reader) decode(data []byte) (doc document) {
	if err := documents.CheckEncoding(data); err != nil {
		r.problem(err.Line, "write the file as UTF-8", "%s", err.Text)
		return doc
	}
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	err := d.Decode(&doc)
	switch bad := (*yaml.TypeError)(nil); {
	case errors.Is(err, io.EOF):
		r.problem(1, "begin with the lines apiVersion: "+APIVersion+" and kind: "+Kind, "the file is empty")
	case errors.As(err, &bad):
		for _, text := range bad.Errors {
			r.decoderError(text)
		}
	case err != nil:
		r.decoderError(strings.TrimPrefix(err.Error(), "yaml: "))
	default:
		var next yaml.Node
		if err := d.Decode(&next); !errors.Is(err, io.EOF) {
			line := next.Line
			if list, errs := documents.Read(data); len(errs) > 0 { // next is not YAML
				line = errs[0].Line
			} else if line == 0 && len(list) > 1 { // JSON needs no separator
				line = list[1].Line
			}
			r.problem(line, "write each bundle in its own file", "the file has a second document")
		}
	}
	if err == nil || errors.As(err, new(*yaml.TypeError)) {
		// The decoder drops empty items of lists.
		if yaml.Unmarshal(data, &r.root) == nil {
			r.refuseEmptyItems(&r.root)
		}
	}
	return doc
}

func (r *reader) refuseEmptyItems(n *yaml.Node) {
	for _, child := range n.Content {
		if n.Kind == yaml.SequenceNode && child.ShortTag() == "!!null" {
			r.problem(child.Line, "remove the dash, or write a value after it", "an item of a list is empty")
		}
		r.refuseEmptyItems(child)
	}
}

// lineOf returns the line of an item of the list with this name.
func (r *reader) lineOf(list string, n int) int {
	_, items := r.field(list)
	if items != nil && items.Kind == yaml.AliasNode {
		items = items.Alias
	}
	if items == nil || n >= len(items.Content) {
		return 1
	}
	return items.Content[n].Line
}

// lineOfField returns the line of a field of the document.
func (r *reader) lineOfField(name string) int {
	if key, _ := r.field(name); key != nil {
		return key.Line
	}
	return 1
}

// field returns the name and the value of a field of the document, nil if it is not written.
func (r *reader) field(name string) (key, value *yaml.Node) {
	if len(r.root.Content) == 0 {
		return nil, nil
	}
	top := r.root.Content[0]
	for i := 0; i+1 < len(top.Content); i += 2 {
		if top.Content[i].Value == name {
			return top.Content[i], top.Content[i+1]
		}
	}
	return nil, nil
}

var (
	errorLine    = regexp.MustCompile(`^line (\d+): (.*)$`)
	unknownField = regexp.MustCompile(`^field (.+) not found in type (\S+)$`)
	wrongKind    = regexp.MustCompile(`^cannot unmarshal .* into (\S+)$`)
	writtenTwice = regexp.MustCompile(`^mapping key (.+) already defined at line (\d+)$`)
)

// decoderError explains an error of the YAML decoder in words of the file.
func (r *reader) decoderError(err string) {
	line, hint := 1, "correct the YAML: indent with spaces, and put values with : or # in quotes"
	if m := errorLine.FindStringSubmatch(err); m != nil {
		line, _ = strconv.Atoi(m[1])
		err = m[2]
	}
	if m := unknownField.FindStringSubmatch(err); m != nil {
		names := fieldsOf(types[m[2]])
		err, hint = fmt.Sprintf("there is no field %q here", m[1]), "fields here: "+strings.Join(names, ", ")
		if near := fault.Nearest(m[1], names); near != "" {
			hint = "did you mean " + near + "? " + hint
		}
	} else if m := wrongKind.FindStringSubmatch(err); m != nil {
		err, hint = wanted(m[1])
	} else if m := writtenTwice.FindStringSubmatch(err); m != nil {
		err, hint = fmt.Sprintf("the field %s is written twice, first at line %s", m[1], m[2]), "remove one of them"
	} else if value, ok := strings.CutPrefix(err, "this is the boolean "); ok { // a text's own errors
		value, _, _ = strings.Cut(value, ",")
		hint = fmt.Sprintf("write %q, with the quotes", value)
	} else if strings.HasPrefix(err, "this must be true ") {
		hint = "write true, or remove the line"
	} else if strings.HasPrefix(err, "this is ") {
		hint = "see the example that \"bundle init\" writes"
	}
	r.problem(line, hint, "%s", err)
}

// wanted describes the kind of value that a Go type needs.
func wanted(name string) (err, hint string) {
	if strings.HasPrefix(name, "[]") {
		return "this must be a list", "write each item on its own line, after a dash and a space"
	}
	return "this must be a mapping", "fields here: " + strings.Join(fieldsOf(types[strings.TrimPrefix(name, "*")]), ", ")
}

// fieldsOf lists the fields of a mapping as they are written.
func fieldsOf(t reflect.Type) (names []string) {
	if t == nil {
		return nil
	}
	for n := range t.NumField() {
		names = append(names, t.Field(n).Tag.Get("yaml"))
	}
	slices.Sort(names)
	return names
}
