package sitefile

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"airlift/images/release"
	"airlift/internal/documents"
	"airlift/internal/fault"
)

// types are the mappings of a document, by the names that the decoder's errors have.
var types = map[string]reflect.Type{}

func init() {
	for _, t := range []reflect.Type{reflect.TypeFor[document](), reflect.TypeFor[release.Versions](), reflect.TypeFor[manifest](),
		reflect.TypeFor[chart](), reflect.TypeFor[file](), reflect.TypeFor[unit]()} {
		types[t.String()] = t
	}
}

// decode checks a document: one, without unknown fields, duplicate keys or empty list items.
func (r *reader) decode(data []byte) {
	if err := documents.CheckEncoding(data); err != nil {
		r.problems.Add(err.Line, "write the file as UTF-8", "%s", err.Text)
		return
	}
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	err := d.Decode(new(document))
	switch bad := (*yaml.TypeError)(nil); {
	case errors.Is(err, io.EOF):
		r.problems.Add(1, "begin with the lines apiVersion: "+APIVersion+" and kind: "+Kind, "the file is empty")
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
			r.problems.Add(line, "write each bundle in its own file", "the file has a second document")
		}
	}
	if err == nil || errors.As(err, new(*yaml.TypeError)) {
		// The decoder drops empty items of lists, and converts booleans.
		if yaml.Unmarshal(data, &r.root) == nil {
			r.refuseEmptyItems(&r.root)
			r.checkBooleans()
		}
	}
}

// checkBooleans refuses a boolean that should be a text, and another word for a boolean. yes and on are
// texts, as in YAML 1.2.
func (r *reader) checkBooleans() {
	for _, name := range fieldsOf(reflect.TypeFor[document]()) {
		for _, n := range documents.All(r.top(), name) {
			known := r.problems.Any(func(line int, text string) bool { return line == n.Line && strings.HasPrefix(text, "this ") })
			switch is, want := n.ShortTag() == "!!bool", name == "keepCompressedLayers"; {
			case known:
			case is && !want:
				r.decoderError(fmt.Sprintf("line %d: this is the boolean %s, but must be a string", n.Line, n.Value))
			case want && !is && n.ShortTag() != "!!null":
				r.decoderError(fmt.Sprintf("line %d: cannot unmarshal %s into bool", n.Line, n.ShortTag()))
			}
		}
	}
}

// leaveOut removes the fields that the command line gives.
func (r *reader) leaveOut() {
	for _, name := range fieldsOf(reflect.TypeFor[document]()) {
		r.leaveOutIn(r.top(), "", name)
	}
	for _, name := range fieldsOf(reflect.TypeFor[release.Versions]()) {
		r.leaveOutIn(documents.Value(r.top(), "componentVersions"), "componentVersions.", name)
	}
}

func (r *reader) leaveOutIn(mapping *yaml.Node, path, name string) {
	key, _ := documents.Field(mapping, name)
	for ; key != nil && r.given(path+name); key, _ = documents.Field(mapping, name) {
		key.Value = "-" + name // the decoder ignores it
	}
}

func (r *reader) refuseEmptyItems(n *yaml.Node) {
	for _, child := range n.Content {
		if n.Kind == yaml.SequenceNode && child.ShortTag() == "!!null" {
			r.problems.Add(child.Line, "remove the dash, or write a value after it", "an item of a list is empty")
		}
		r.refuseEmptyItems(child)
	}
}

// lineOf returns the line of an item of the list with this name.
func (r *reader) lineOf(list string, n int) int {
	if item := documents.Item(documents.Value(r.top(), list), n); item != nil {
		return item.Line
	}
	return 1
}

// lineOfField returns the line of a field of the document.
func (r *reader) lineOfField(name string) int {
	if key, _ := documents.Field(r.top(), name); key != nil {
		return key.Line
	}
	return 1
}

// top is the document's mapping; nil if there is none.
func (r *reader) top() *yaml.Node {
	if len(r.root.Content) == 0 {
		return nil
	}
	return r.root.Content[0]
}

// texts returns the values that are written at a path of fields with their lines.
func (r *reader) texts(path ...string) (all []text) {
	for _, n := range documents.All(r.top(), path...) {
		if n.ShortTag() != "!!null" {
			all = append(all, text{n.Value, n.Line})
		}
	}
	return all
}

// text returns the value of a field with its line; the zero text if it is not written.
func (r *reader) text(name string) text {
	for _, t := range r.texts(name) {
		return t
	}
	return text{}
}

var (
	errorLine    = regexp.MustCompile(`^line (\d+): (.*)$`)
	unknownField = regexp.MustCompile(`^field (.+) not found in type (\S+)$`)
	wrongKind    = regexp.MustCompile(`^cannot unmarshal (\S+).* into (\S+)$`)
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
		err, hint = wanted(m[1], m[2])
	} else if m := writtenTwice.FindStringSubmatch(err); m != nil {
		err, hint = fmt.Sprintf("the field %s is written twice, first at line %s", m[1], m[2]), "remove one of them"
	} else if value, ok := strings.CutPrefix(err, "this is the boolean "); ok { // a text's own errors
		value, _, _ = strings.Cut(value, ",")
		hint = fmt.Sprintf("write %q, with the quotes", value)
	} else if strings.HasPrefix(err, "this is ") {
		hint = hintExample
	}
	r.problems.Add(line, hint, "%s", err)
}

const hintExample = "see the example that \"bundle init\" writes"

// wanted describes the kind of value that a Go type needs instead of a YAML tag.
func wanted(tag, name string) (err, hint string) {
	switch {
	case name == "bool":
		return "this must be true or false", "write true, or remove the line"
	case name == "string" && tag == "!!seq":
		return notOneValue("list"), hintExample
	case name == "string":
		return notOneValue("mapping"), hintExample
	case strings.HasPrefix(name, "[]"):
		return "this must be a list", "write each item on its own line, after a dash and a space"
	}
	return "this must be a mapping", "fields here: " + strings.Join(fieldsOf(types[strings.TrimPrefix(name, "*")]), ", ")
}

func notOneValue(kind string) string { return "this is a " + kind + ", but must be one value" }

// fieldsOf lists the fields of a mapping as they are written.
func fieldsOf(t reflect.Type) (names []string) {
	if t == nil {
		return nil
	}
	for f := range t.Fields() {
		switch name := f.Tag.Get("yaml"); name {
		case "-":
		case ",inline":
			names = append(names, fieldsOf(f.Type)...)
		default:
			names = append(names, cmp.Or(name, strings.ToLower(f.Name)))
		}
	}
	slices.Sort(names)
	return names
}
