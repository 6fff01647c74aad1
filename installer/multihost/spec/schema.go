package spec

import (
	"encoding/json"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"airlift/installer/config"
	"airlift/internal/documents"
	"airlift/internal/documents/strict"
)

// A schema is a part of a JSON schema, draft 7, which editors know.
type schema map[string]any

// shapes are what a schema can say of a rule, by its name in document. It never refuses what the rule accepts.
var shapes = map[string]schema{
	"role":     {"enum": []string{ControlPlane, Worker}},
	"count":    {"minimum": 1},
	"port":     {"minimum": 1, "maximum": 65535},
	"day":      {"anyOf": []schema{{"enum": []string{"Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"}}, {"pattern": "^[A-Za-z]{3,9}$"}}},
	"taint":    {"pattern": ":(NoSchedule|PreferNoSchedule|NoExecute)$"},
	"hostKey":  {"pattern": "^SHA256:|\\S\\s+\\S"},
	"limit":    {"pattern": "^[1-9][0-9]*%?$"},
	"duration": {"pattern": "^[-+]?[0-9.]+[0-9.a-zµμ]*$"},
}

// Schema returns the JSON schema of cluster.yaml. It accepts all that Read accepts. The descriptions are the comments of the example.
func Schema() ([]byte, error) {
	about, err := descriptions()
	if err != nil {
		return nil, err
	}
	var kinds []string
	for _, kind := range slices.Sorted(maps.Keys(config.Kinds)) {
		if !slices.ContainsFunc(refusedFields, func(f refusedField) bool { return f.kind == kind && slices.Equal(f.path, []string{"kind"}) }) {
			kinds = append(kinds, kind)
		}
	}
	cluster := about.of(reflect.TypeFor[document](), "")
	properties := cluster["properties"].(schema)
	properties["apiVersion"], properties["kind"] = schema{"const": apiVersion}, schema{"const": kind}
	cluster["required"] = append([]string{"apiVersion", "kind"}, cluster["required"].([]string)...)
	data, err := json.MarshalIndent(schema{
		"$schema": "http://json-schema.org/draft-07/schema#",
		"title":   "cluster.yaml of Airlift, with the documents of kubeadm",
		"type":    "object",
		"if":      schema{"properties": schema{"kind": schema{"enum": kinds}}, "required": []string{"kind"}},
		"then":    schema{"properties": schema{"apiVersion": schema{"type": "string", "pattern": `\.k8s\.io/v1`}}, "required": []string{"apiVersion"}},
		"else":    cluster,
	}, "", "  ")
	return append(data, '\n'), err
}

// of returns the schema of a type of document.
func (a comments) of(t reflect.Type, tag reflect.StructTag) schema {
	s := schema{}
	switch t.Kind() {
	case reflect.Pointer:
		return a.of(t.Elem(), tag)
	case reflect.Bool:
		s["type"] = "boolean"
	case reflect.Int:
		s["type"] = "integer"
	case reflect.Map:
		s["type"], s["additionalProperties"] = "object", a.of(t.Elem(), tag)
		return s
	case reflect.Slice:
		one := a.of(t.Elem(), tag)
		s["type"], s["items"] = "array", one
		if tag.Get("one") != "" {
			return schema{"anyOf": []schema{one, s}}
		}
		return s
	case reflect.Struct:
		properties, required := schema{}, []string{}
		for name, f := range strict.Fields(t) {
			of := a.of(f.Type, f.Tag)
			if text := a[declaration{declares(t, f), name}]; text != "" {
				of["description"] = text
			}
			properties[name] = of
			if f.Tag.Get("need") != "" {
				required = append(required, name)
			}
		}
		slices.Sort(required)
		return schema{"type": "object", "additionalProperties": false, "properties": properties, "required": required}
	default:
		s["type"] = "string"
		if tag.Get("number") != "" {
			s["type"] = []string{"string", "number"}
		}
		if tag.Get("is") != "labelValue" {
			s["minLength"] = 1
		}
	}
	maps.Copy(s, shapes[tag.Get("is")])
	return s
}

// comments are the comments of the example, by the field.
type comments map[declaration]string

// A declaration is a field of the struct that declares it.
type declaration struct {
	of   reflect.Type
	name string
}

func declares(t reflect.Type, f reflect.StructField) reflect.Type {
	if len(f.Index) == 1 {
		return t
	}
	return t.FieldByIndex(f.Index[:len(f.Index)-1]).Type
}

// commented matches the begin of a line that the example has as a comment, and that is not text.
var commented = regexp.MustCompile(`(?m)^#(  |- |[a-zA-Z]+:|---)`)

func descriptions() (comments, error) {
	list, errs := documents.Read([]byte(commented.ReplaceAllString(exampleFile, "$1")))
	if len(errs) > 0 {
		return nil, errs[0]
	}
	a := comments{}
	a.read(reflect.TypeFor[document](), list[0].Node)
	return a, nil
}

// read adds the comments at a value of the example: of the first place that has one.
func (a comments) read(t reflect.Type, n *documents.Node) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice && documents.Item(n, 0) == nil {
		t = t.Elem()
	}
	if t.Kind() == reflect.Slice {
		for _, item := range n.Content {
			a.read(t.Elem(), item)
		}
	}
	if t.Kind() != reflect.Struct {
		return
	}
	for name, f := range strict.Fields(t) {
		key, value := documents.Field(n, name)
		if key == nil {
			continue
		}
		at := declaration{declares(t, f), name}
		for _, text := range []string{key.HeadComment, key.LineComment, value.LineComment} {
			text = strings.Join(strings.Fields(strings.ReplaceAll("\n"+text, "\n#", " ")), " ")
			if a[at] == "" && !strings.HasPrefix(text, "as above") {
				a[at] = text
			}
		}
		a.read(f.Type, value)
	}
}
