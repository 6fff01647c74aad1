package spec

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"airlift/internal/documents"
	"airlift/internal/fault"
)

// A place is a value in the file.
type place struct {
	path string // hosts[2].ssh.port, "" for the document
	node *documents.Node
	line int
}

func (p place) of(field string) string { return strings.TrimPrefix(p.path+"."+field, ".") }

// field is the place of a field, at the line of its name.
func (p place) field(name string) place {
	to := place{p.of(name), nil, p.line}
	if key, value := documents.Field(p.node, name); key != nil {
		to.node, to.line = value, key.Line
	}
	return to
}

func (p place) item(i int) place {
	to := place{fmt.Sprintf("%s[%d]", p.path, i), documents.Item(p.node, i), p.line}
	if to.node != nil {
		to.line = to.node.Line
	}
	return to
}

// decode sets a field of a document to a decoded JSON value, and records its line and everything that is wrong with it.
// A value that is wrong stays zero.
func (r *reader) decode(into reflect.Value, tag reflect.StructTag, value any, at place) {
	r.lines[at.path] = at.line
	if value == nil {
		r.Add(at.line, "write a value, or remove the line", "%s is empty", at.path)
		return
	}
	switch into.Kind() {
	case reflect.Pointer:
		to := reflect.New(into.Type().Elem())
		r.decode(to.Elem(), tag, value, at)
		into.Set(to)
	case reflect.Struct:
		r.decodeFields(into, value, at)
	case reflect.Map:
		r.decodeLabels(into, tag, value, at)
	case reflect.Slice:
		r.decodeList(into, tag, value, at)
	case reflect.Bool:
		if on, ok := value.(bool); ok {
			into.SetBool(on)
			return
		}
		r.Add(at.line, "write true or false, without quotes", "%s must be true or false", at.path)
	case reflect.Int:
		number, _ := value.(json.Number)
		// YAML reads 022 as 18.
		if port, err := number.Int64(); err == nil && documents.Written(at.node, value) == number.String() && validation.IsValidPortNum(int(port)) == nil {
			into.SetInt(port)
			return
		}
		r.Add(at.line, "write a number from 1 to 65535, without quotes and without a zero in front", "%s must be the number of a port", at.path)
	default:
		r.decodeText(into, tag.Get("is"), value, at)
	}
}

func (r *reader) decodeList(into reflect.Value, tag reflect.StructTag, value any, at place) {
	list, isList := value.([]any)
	if !isList && tag.Get("one") != "" {
		list, isList = []any{value}, true
	}
	if !isList {
		r.Add(at.line, "write each item on its own line, after a dash and a space", "%s must be a list", at.path)
		return
	}
	into.Set(reflect.MakeSlice(into.Type(), len(list), len(list)))
	for i, item := range list {
		to := at.item(i)
		if documents.Item(at.node, 0) == nil {
			to = at // a single text
		}
		r.decode(into.Index(i), tag, item, to)
	}
}

func (r *reader) decodeFields(into reflect.Value, value any, at place) {
	fields := fieldsOf(into.Type())
	mapping, ok := value.(map[string]any)
	if !ok {
		r.Add(at.line, "fields here: "+strings.Join(slices.Sorted(maps.Keys(fields)), ", "), "%s must be a mapping", at.path)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(mapping)) {
		to := at.field(name)
		if field, known := fields[name]; known {
			r.decode(into.FieldByIndex(field.Index), field.Tag, mapping[name], to)
		} else {
			r.unknown(name, fields, to)
		}
	}
}

// fieldsOf returns the fields of a struct and of those embedded in it by their names in the file.
func fieldsOf(t reflect.Type) map[string]reflect.StructField {
	fields := map[string]reflect.StructField{}
	for _, f := range reflect.VisibleFields(t) {
		if name := f.Tag.Get("yaml"); name != "" {
			fields[name] = f
		}
	}
	return fields
}

func (r *reader) decodeLabels(into reflect.Value, tag reflect.StructTag, value any, at place) {
	mapping, ok := value.(map[string]any)
	if !ok {
		r.Add(at.line, `write each label on its own line, as name: "value"`, "%s must be a mapping", at.path)
		return
	}
	into.Set(reflect.MakeMap(into.Type()))
	for _, key := range slices.Sorted(maps.Keys(mapping)) {
		to := at.field(key)
		text := reflect.New(into.Type().Elem()).Elem()
		r.decode(text, tag, mapping[key], to)
		into.SetMapIndex(reflect.ValueOf(key), text)
		if why := validation.IsQualifiedName(key); len(why) > 0 {
			r.Add(to.line, "", "%s: the name of the label is not valid: %s", to.path, why[0])
		} else if slices.Contains(kubeletLabels, key) {
			r.Add(to.line, "remove the line", "%s: Kubernetes sets this label itself", to.path)
		}
	}
}

// kubeletLabels are labels that the kubelet sets again when they change (pkg/kubelet/kubelet_node_status.go,
// updateDefaultLabels), and the one of the role.
var kubeletLabels = []string{"kubernetes.io/hostname", "kubernetes.io/os", "kubernetes.io/arch", "beta.kubernetes.io/os",
	"beta.kubernetes.io/arch", "node-role.kubernetes.io/control-plane"}

func (r *reader) decodeText(into reflect.Value, rule string, value any, at place) {
	_, isNumber := value.(json.Number)
	text, isText := value.(string)
	written := documents.Written(at.node, value)
	if isNumber && (rule == "limit" || rule == "duration") {
		text, isText = written, true
	}
	_, isList := value.([]any)
	_, isMapping := value.(map[string]any)
	switch {
	case isList || isMapping:
		r.Add(at.line, "", "%s must be one text", at.path)
	case !isText:
		r.Add(at.line, fmt.Sprintf("put it in quotes: %q", written), "%s is %s, which YAML does not read as a text", at.path, written)
	case text == "" && rule != "labelValue":
		r.Add(at.line, "write a value, or remove the line", "%s is empty", at.path)
	case rule == "":
		into.SetString(text)
	default:
		set, why, hint := rules[rule](r, text, at)
		if why != "" {
			r.Add(at.line, hint, "%s %q %s", at.path, text, why)
		}
		into.SetString(set)
	}
}

// secret matches names of fields that would have a secret.
var secret = regexp.MustCompile(`(?i)passw|passphrase|token|secret|certificatekey|credential|(key|pk)_?(data|content)|^(pk|private_?key)$`)

// unknown refuses a field, and suggests the one that was meant.
func (r *reader) unknown(name string, fields map[string]reflect.StructField, at place) {
	names := slices.Sorted(maps.Keys(fields))
	hint := elsewhere[name]
	if near := fault.Nearest(name, names); near != "" && hint == "" {
		hint = "did you mean " + near + "?"
	} else if hint == "" {
		hint = "fields here: " + strings.Join(names, ", ")
	}
	if secret.MatchString(name) {
		r.Add(at.line, "remove the line: cluster commands ask for passwords and passphrases on the terminal, and create tokens and keys themselves",
			"%s: cluster.yaml has no secrets", at.path)
		return
	}
	r.Add(at.line, hint, "there is no field %s", at.path)
}

// elsewhere are fields of k0sctl, KubeKey and others, with what to write instead.
var elsewhere = map[string]string{
	"spec":                 "write its fields at the beginning of the line, without spec",
	"metadata":             "write name: at the beginning of the line",
	"hostname":             "write the name of the node in name; Airlift does not rename hosts",
	"privateAddress":       "write nodeIP",
	"internalAddress":      "write nodeIP",
	"internal_address":     "write nodeIP",
	"privateInterface":     "write the address of the interface in nodeIP",
	"user":                 "write it in ssh",
	"port":                 "write it in ssh",
	"keyPath":              "write it in ssh",
	"privateKeyPath":       "write ssh.keyPath",
	"keyFile":              "write keyPath",
	"private_key":          "write keyPath with the path of the file",
	"bastion":              "write jump, a list of hosts to go through",
	"noTaints":             "write taints: [] at the control planes that run pods",
	"roleGroups":           "write role at each host",
	"controlPlaneEndpoint": "write endpoint, or ClusterConfiguration in the documents of kubeadm",
	"kubernetes":           "kubeadm's documents follow after a line with ---, or are in a file: kubeadm: FILE",
	"kubernetesVersion":    "the version is the version of the file: ./install version",
	"version":              "the version is the version of the file: ./install version",
	"vips":                 "write vip",
	"network":              "write networking of ClusterConfiguration in the documents of kubeadm",
	"registry":             "write embeddedRegistry: true, or ./install init --registry-mirror",
}
