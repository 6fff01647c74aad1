// Package strict decodes documents that people write into Go values. Every byte is used or is an error with its line, its path and
// what to write.
package strict

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	kjson "sigs.k8s.io/json"

	"airlift/internal/documents"
	"airlift/internal/documents/problems"
	"airlift/internal/fault"
)

// maxSize is the maximum size of a file in bytes: enough for every real one, and a safe limit for another file by mistake.
const maxSize = 4 << 20

// Load reads a file, or standard input for "-".
func Load(path string) ([]byte, error) {
	in := io.Reader(os.Stdin)
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, maxSize+1))
	if err == nil && len(data) > maxSize {
		err = fmt.Errorf("%q is larger than %d MiB", path, maxSize>>20)
	}
	return data, err
}

// A Place is a value in a file.
type Place struct {
	Path string // hosts[2].ssh.port, "" for the document
	Node *documents.Node
	Line int // a field's is the line of its name
}

// Field is the place of a field.
func (p Place) Field(name string) Place {
	to := Place{strings.TrimPrefix(p.Path+"."+name, "."), nil, p.Line}
	if key, value := documents.Field(p.Node, name); key != nil {
		to.Node, to.Line = value, key.Line
	}
	return to
}

// Item is the place of an item of a list.
func (p Place) Item(i int) Place {
	to := Place{fmt.Sprintf("%s[%d]", p.Path, i), documents.Item(p.Node, i), p.Line}
	if to.Node != nil {
		to.Line = to.Node.Line
	}
	return to
}

// Lines are the lines of the values in a file, by their paths.
type Lines map[string]int

// Nearest is the line of a value, or of what it is missing in.
func (l Lines) Nearest(format string, args ...any) int {
	path := fmt.Sprintf(format, args...)
	for ; path != "" && l[path] == 0; path = path[:max(0, strings.LastIndexAny(path, ".["))] {
	}
	return max(l[path], 1)
}

// A Decoder has the rules of a kind of file. A field has the name of its tag json. With the tag one, a single value may be written
// instead of a list; with the tag number, a number instead of a text.
type Decoder struct {
	*problems.List
	File  string // of the problems; "" is the list's own
	Lines Lines
	// EmptyFields and EmptyItems allow fields and items of lists without a value.
	EmptyFields, EmptyItems bool
	// YAML12 reads yes and on as texts, and numbers where a text is expected.
	YAML12 bool
	// Has reports whether this version of the file has a field, nil if it has all.
	Has func(reflect.StructTag) bool
	// Unknown refuses a field, or returns a hint. near is the name that was meant, or "".
	Unknown func(of reflect.Type, name, near string, at Place) (hint string, refused bool)
	// Replace decodes values of types that no rule here fits.
	Replace func(into reflect.Value, value any, at Place) bool
	// Check checks what was decoded: a text, a number, a boolean, and then a list or a mapping of them.
	Check func(into reflect.Value, tag reflect.StructTag, at Place)

	root string // the path of the document
}

// Document decodes a document. root begins the paths of its values.
func (d *Decoder) Document(into any, doc documents.Document, root string) {
	var value any
	numbers := json.NewDecoder(bytes.NewReader(doc.JSON))
	numbers.UseNumber()
	if err := numbers.Decode(&value); err != nil {
		d.AddIn(d.File, doc.Line, "", "%v", err)
		return
	}
	d.root = root
	d.Decode(reflect.ValueOf(into).Elem(), "", value, Place{root, doc.Node, doc.Line})
}

// Head checks apiVersion and kind, without which nothing else makes sense.
func (d *Decoder) Head(doc documents.Document, apiVersion, kind, example string) bool {
	known := len(d.Problems)
	for _, f := range [][2]string{{"apiVersion", apiVersion}, {"kind", kind}} {
		key, value := documents.Field(doc.Node, f[0])
		switch {
		case key == nil:
			d.AddIn(d.File, doc.Line, fmt.Sprintf("write %s: %s; to print an example: %s", f[0], f[1], example), "the file has no %s", f[0])
		case value.Value != f[1]:
			d.AddIn(d.File, key.Line, fmt.Sprintf("write %s: %s in the first document", f[0], f[1]), "%s %q is not supported", f[0], value.Value)
		}
	}
	return len(d.Problems) == known
}

// Decode sets a value to decoded JSON, and records its line and everything that is wrong with it. A value that is wrong stays zero.
func (d *Decoder) Decode(into reflect.Value, tag reflect.StructTag, value any, at Place) {
	d.Lines[at.Path] = at.Line
	if value == nil {
		if item := strings.HasSuffix(at.Path, "]"); item && !d.EmptyItems {
			d.Refuse(at, "remove the dash, or write a value after it", "%s is empty", at.Path)
		} else if !item && !d.EmptyFields {
			d.Refuse(at, "write a value, or remove the line", "%s is empty", at.Path)
		}
		return
	}
	if d.Replace != nil && d.Replace(into, value, at) {
		return
	}
	if _, ok := into.Addr().Interface().(json.Unmarshaler); ok {
		d.leaf(into, tag, value, at)
		return
	}
	switch into.Kind() {
	case reflect.Pointer:
		to := reflect.New(into.Type().Elem())
		d.Decode(to.Elem(), tag, value, at)
		into.Set(to)
	case reflect.Struct:
		if _, ok := into.Addr().Interface().(encoding.TextUnmarshaler); ok {
			d.leaf(into, tag, value, at)
			return
		}
		d.decodeFields(into, value, at)
	case reflect.Map:
		mapping, ok := value.(map[string]any)
		if !ok {
			d.wrong(value, at, `write each on its own line, as name: "value"`, "a mapping")
			return
		}
		into.Set(reflect.MakeMap(into.Type()))
		for _, name := range slices.Sorted(maps.Keys(mapping)) {
			item := reflect.New(into.Type().Elem()).Elem()
			d.Decode(item, tag, mapping[name], at.Field(name))
			into.SetMapIndex(reflect.ValueOf(name).Convert(into.Type().Key()), item)
		}
		d.check(into, tag, at)
	case reflect.Slice:
		list, ok := value.([]any)
		single := !ok && tag.Get("one") != ""
		if single {
			list, ok = []any{value}, true
		}
		if !ok {
			d.wrong(value, at, "write each item on its own line, after a dash and a space", "a list")
			return
		}
		into.Set(reflect.MakeSlice(into.Type(), len(list), len(list)))
		for i, item := range list {
			to := at.Item(i)
			if single {
				to.Node = at.Node
			}
			d.Decode(into.Index(i), tag, item, to)
		}
		d.check(into, tag, at)
	default:
		d.leaf(into, tag, value, at)
	}
}

func (d *Decoder) decodeFields(into reflect.Value, value any, at Place) {
	fields := Fields(into.Type())
	if d.Has != nil {
		maps.DeleteFunc(fields, func(_ string, f reflect.StructField) bool { return !d.Has(f.Tag) })
	}
	if at.Path == d.root {
		for _, name := range []string{"apiVersion", "kind"} { // read before
			if _, own := fields[name]; !own {
				fields[name] = reflect.StructField{}
			}
		}
	}
	names := slices.Sorted(maps.Keys(fields))
	mapping, ok := value.(map[string]any)
	if !ok {
		d.wrong(value, at, fieldsHere(names), "a mapping")
		return
	}
	for _, name := range slices.Sorted(maps.Keys(mapping)) {
		if field, known := fields[name]; !known {
			d.unknown(into.Type(), names, name, at.Field(name))
		} else if field.Index != nil {
			d.Decode(into.FieldByIndex(field.Index), field.Tag, mapping[name], at.Field(name))
		}
	}
}

// Fields returns the fields of a struct and of those embedded in it by their names in the file.
func Fields(t reflect.Type) map[string]reflect.StructField {
	fields := map[string]reflect.StructField{}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if _, outer := fields[name]; !outer && name != "" && name != "-" {
			fields[name] = f
		}
	}
	return fields
}

// MaxNames is the maximum number of fields in a hint.
const MaxNames = 12

func fieldsHere(names []string) string {
	if more := len(names) - MaxNames; more > 0 {
		names = append(names[:MaxNames:MaxNames], fmt.Sprintf("and %d more", more))
	}
	return "fields here: " + strings.Join(names, ", ")
}

// unknown refuses a field, and suggests the one that was meant.
func (d *Decoder) unknown(of reflect.Type, names []string, name string, at Place) {
	near := fault.Nearest(name, names)
	hint, refused := "", false
	if d.Unknown != nil {
		hint, refused = d.Unknown(of, name, near, at)
	}
	similar := fault.Similar(name, names, 3)
	switch {
	case refused:
		return
	case hint != "":
	case near != "" && len(names) <= MaxNames:
		hint = "did you mean " + near + "? " + fieldsHere(names)
	case near != "":
		hint = "did you mean " + near + "?"
	case len(names) > MaxNames && len(similar) > 0:
		hint = "similar fields are " + strings.Join(similar, ", ")
	default:
		hint = fieldsHere(names)
	}
	d.Refuse(at, hint, "%s is not known", at.Path)
}

// leaf decodes a value without fields.
func (d *Decoder) leaf(into reflect.Value, tag reflect.StructTag, value any, at Place) {
	t := into.Type()
	_, isNumber := value.(json.Number)
	_, encoded := into.Addr().Interface().(json.Unmarshaler)
	textual, isText := into.Addr().Interface().(encoding.TextUnmarshaler)
	isText = !encoded && (isText || t.Kind() == reflect.String || t == duration)
	if written := documents.Written(at.Node, value); isText && isNumber && (d.YAML12 || tag.Get("number") != "") || d.YAML12 && documents.IsText(at.Node) {
		value = written
	}
	err := error(nil)
	switch text, ok := value.(string); {
	case isText && !ok:
		err = errors.New("not a text")
	case t == duration:
		var period time.Duration
		period, err = time.ParseDuration(text)
		into.SetInt(int64(period))
	case isText && t.Kind() != reflect.String:
		err = textual.UnmarshalText([]byte(text))
	default:
		var data []byte
		if data, err = json.Marshal(value); err == nil {
			err = kjson.UnmarshalCaseSensitivePreserveInts(data, into.Addr().Interface())
		}
	}
	if err == nil {
		d.check(into, tag, at)
		return
	}
	into.SetZero()
	_, isList := value.([]any)
	_, isMapping := value.(map[string]any)
	switch {
	case contains(t, duration):
		d.wrong(value, at, "", "a duration such as 4m0s, 90s or 8760h")
	case contains(t, reflect.TypeFor[time.Time]()):
		d.wrong(value, at, "", `a time such as "2030-01-02T15:04:05Z"`)
	case isText && (isList || isMapping):
		d.wrong(value, at, "write one value", "a string")
	case t.Kind() == reflect.String:
		d.wrong(value, at, fmt.Sprintf("put it in quotes, %q", documents.Written(at.Node, value)), "a string")
	case t.Kind() == reflect.Bool:
		d.wrong(value, at, "write true or false, without quotes", "true or false")
	case into.CanInt() || into.CanUint():
		d.wrong(value, at, "write it without quotes", fmt.Sprintf("a whole number of at most %d bits", t.Bits()))
	default:
		d.Refuse(at, "", "%s is %s: %v", at.Path, Describe(value, at.Node), err)
	}
}

// Refuse adds a problem at a place.
func (d *Decoder) Refuse(at Place, hint, format string, args ...any) {
	d.AddIn(d.File, at.Line, hint, format, args...)
	d.Problems[len(d.Problems)-1].Field = at.Path
}

func (d *Decoder) check(into reflect.Value, tag reflect.StructTag, at Place) {
	if d.Check != nil {
		d.Check(into, tag, at)
	}
}

var duration = reflect.TypeFor[time.Duration]()

// contains reports whether a type is another one, or a struct with only that.
func contains(t, other reflect.Type) bool {
	return t == other || t.Kind() == reflect.Struct && t.NumField() == 1 && t.Field(0).Type == other
}

func (d *Decoder) wrong(value any, at Place, hint, want string) {
	d.Refuse(at, hint, "%s is %s and must be %s", at.Path, Describe(value, at.Node), want)
}

// Describe describes a decoded JSON value for messages. node is where it was written, or nil: YAML reads 1.30 as 1.3.
func Describe(value any, node *documents.Node) string {
	switch v := value.(type) {
	case nil:
		return "empty"
	case map[string]any:
		return "a mapping"
	case []any:
		return "a list"
	case string:
		return fmt.Sprintf("the string %q", v)
	case bool:
		return "the boolean " + documents.Written(node, v)
	default:
		return "the number " + documents.Written(node, v)
	}
}
