package redact

import (
	"bufio"
	"bytes"
	"encoding"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	clientcmd "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/yaml"

	"airlift/installer/config"
	"airlift/installer/corefile"
)

// Documents redacts YAML documents or JSON.
func Documents(text []byte) []byte { return rewrite(text, Object) }

// TOML redacts a file of containerd's configuration. Comments are taken out.
func TOML(text []byte) []byte {
	var v map[string]any
	err := toml.Unmarshal(text, &v)
	if broken := (*toml.DecodeError)(nil); errors.As(err, &broken) {
		row, _ := broken.Position()
		err = fmt.Errorf("line %d", row)
	}
	if err != nil {
		return opaque(text, "not valid TOML", err)
	}
	out, err := toml.Marshal(named(v, containerdNames))
	if err != nil {
		return opaque(text, "not valid TOML", err)
	}
	return out
}

// rewrite decodes YAML documents or JSON, redacts each, and encodes it in the same way.
// Comments are taken out.
func rewrite(text []byte, redact func(any) any) []byte {
	docs, isJSON, err := decode(text)
	if err != nil {
		return opaque(text, "not valid YAML or JSON", err)
	}
	for i := range docs {
		docs[i] = redact(docs[i])
	}
	out, err := encode(docs, isJSON)
	if err != nil {
		return opaque(text, "not valid YAML or JSON", err)
	}
	return out
}

// decode returns the documents of a text, with the text of numbers unchanged.
func decode(text []byte) (docs []any, isJSON bool, err error) {
	if v, err := decodeJSON(text); err == nil {
		return []any{v}, true, nil
	}
	for r := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text))); ; {
		doc, err := r.Read()
		if errors.Is(err, io.EOF) {
			return docs, false, nil
		}
		if err != nil {
			return nil, false, err
		}
		data, err := yaml.YAMLToJSONStrict(doc)
		if err != nil {
			return nil, false, err
		}
		v, err := decodeJSON(data)
		if err != nil {
			return nil, false, err
		}
		if v != nil {
			docs = append(docs, v)
		}
	}
}

func decodeJSON(text []byte) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one value")
	}
	return v, nil
}

func encode(docs []any, isJSON bool) ([]byte, error) {
	var out bytes.Buffer
	if isJSON {
		e := json.NewEncoder(&out)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		err := e.Encode(docs[0])
		return out.Bytes(), err
	}
	for i, doc := range docs {
		data, err := yaml.Marshal(doc)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			out.WriteString("---\n")
		}
		out.Write(data)
	}
	return out.Bytes(), nil
}

// Object redacts a decoded object by the type of its kind. Of an object of an unknown kind,
// only the names of fields are kept.
func Object(v any) any {
	switch v := v.(type) {
	case []any:
		return each(v, Object)
	case map[string]any:
		if t := kindOf(v); t != nil {
			return document(v, t)
		}
		if names := namesOf(v); names != nil {
			return named(v, names)
		}
	}
	return unknown(v)
}

// kindOf returns the Go type of an object of Kubernetes, or nil.
func kindOf(v map[string]any) reflect.Type {
	apiVersion, _ := v["apiVersion"].(string)
	kind, _ := v["kind"].(string)
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return nil
	}
	if t := config.TypeOfKind(gv.Group, kind); t != nil {
		return t
	}
	switch {
	case gv.Group == "" && kind == "Config":
		return reflect.TypeFor[clientcmd.Config]()
	case gv.Group == "airlift" && kind == "Reconfiguration":
		return reflect.TypeFor[config.Reconfiguration]()
	case gv.Group == "airlift" && kind == "Endpoint":
		return reflect.TypeFor[config.Endpoint]()
	}
	object, err := scheme.Scheme.New(gv.WithKind(kind))
	if err != nil {
		return nil
	}
	return reflect.TypeOf(object)
}

// document redacts an object whose type may have no fields for its apiVersion and kind.
func document(v any, t reflect.Type) any {
	redacted := typed(v, t)
	from, _ := v.(map[string]any)
	if to, ok := redacted.(map[string]any); ok {
		for _, name := range []string{"apiVersion", "kind"} {
			if text, ok := from[name].(string); ok {
				to[name] = plain(text)
			}
		}
	}
	return redacted
}

// typed redacts a value of a type. A value or a field that the type does not have is unknown.
func typed(v any, t reflect.Type) any {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if rule := typeRules[t.Name()]; rule != nil {
		return rule(v)
	}
	switch v := v.(type) {
	case nil, bool:
		return v
	case string:
		if isText(t) {
			return plain(v)
		}
	case json.Number:
		if isNumber(t) {
			return v
		}
	case []any:
		if t.Kind() == reflect.Slice {
			return each(v, func(item any) any { return typed(item, t.Elem()) })
		}
	case map[string]any:
		switch {
		case t == reflect.TypeFor[runtime.RawExtension]():
			return Object(v)
		case t.Kind() == reflect.Map && t.Elem().Kind() != reflect.String && t.Elem().Kind() != reflect.Slice:
			return eachField(v, func(_ string, item any) any { return typed(item, t.Elem()) })
		case t.Kind() == reflect.Struct:
			return eachField(v, func(name string, item any) any { return fieldOf(t, name, item) })
		}
	}
	return unknown(v)
}

// fieldOf redacts a field of a struct.
func fieldOf(t reflect.Type, name string, v any) any {
	if rule := fieldRules[name]; rule != nil {
		return rule(v)
	}
	f, ok := structField(t, name)
	_, isString := v.(string)
	switch {
	case !ok, isString && (f.Tag.Get("datapolicy") != "" || secretName.MatchString(name)):
		return unknown(v)
	case f.Type == reflect.TypeFor[[]byte]():
		return public(v)
	}
	return typed(v, f.Type)
}

// structField returns the field with a name in JSON, also of embedded structs.
func structField(t reflect.Type, name string) (reflect.StructField, bool) {
	for _, f := range reflect.VisibleFields(t) {
		tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if tag == name && !strings.Contains(options, "inline") {
			return f, true
		}
	}
	return reflect.StructField{}, false
}

// isText reports whether a value of a type is a string in JSON.
func isText(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return t.Kind() == reflect.String || t == reflect.TypeFor[time.Duration]() || p.Implements(reflect.TypeFor[json.Unmarshaler]()) || p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

var (
	userOfURL  = regexp.MustCompile(`(?s)^([A-Za-z][A-Za-z0-9+.-]*://).*@`)
	queryOfURL = regexp.MustCompile(`(://[^?\s]*\?)[^\s"']+`)
)

// plain redacts a text that is harmless by its name or type. It may be a URL with a user or a query.
func plain(text string) string {
	text = userOfURL.ReplaceAllString(text, "${1}"+Marker+"@")
	return Line(queryOfURL.ReplaceAllString(text, "${1}"+Marker))
}

// fieldsWithout redacts an object of a type, and one of its fields as if it were unknown.
func fieldsWithout[T any](field string) func(any) any {
	return func(v any) any {
		return fields(v, func(name string, v any) any {
			if name == field {
				return unknown(v)
			}
			return fieldOf(reflect.TypeFor[T](), name, v)
		})
	}
}

// event also hides the output of commands that run in the site's pods.
func event(v any) any {
	m, _ := v.(map[string]any)
	reason, _ := m["reason"].(string)
	object, _ := m["involvedObject"].(map[string]any)
	if quotesOutput[reason] && object["namespace"] != metav1.NamespaceSystem {
		return fieldsWithout[corev1.Event]("message")(v)
	}
	return fieldsWithout[corev1.Event]("")(v)
}

func isNumber(t reflect.Type) bool {
	return t.Kind() >= reflect.Int && t.Kind() <= reflect.Float64 || isText(t) && t.Kind() != reflect.String
}

// named redacts a value without a type by a list of harmless names. Names in the list apply at
// every depth, but not below a name that is neither in the list nor has fields in it.
func named(v any, names map[string]bool) any {
	return fields(v, func(name string, v any) any {
		switch {
		case names[name]:
			return namedValue(v, names)
		case secretName.MatchString(name), neverBelow[name]:
			return unknown(v)
		}
		return branches(v, names)
	})
}

// namedValue redacts the value of a harmless name.
func namedValue(v any, names map[string]bool) any {
	switch v := v.(type) {
	case map[string]any:
		return named(v, names)
	case []any:
		return each(v, func(item any) any { return namedValue(item, names) })
	case string:
		return plain(v)
	}
	return v
}

// branches redacts the value of a name that is not in the list: it keeps only deeper values whose
// names are in the list.
func branches(v any, names map[string]bool) any {
	switch v := v.(type) {
	case map[string]any:
		return named(v, names)
	case []any:
		return each(v, func(item any) any { return branches(item, names) })
	}
	return unknown(v)
}

// unknown redacts a value of an unknown type: it keeps field names and booleans.
func unknown(v any) any {
	switch v := v.(type) {
	case nil, bool:
		return v
	case map[string]any:
		return unknownFields(v)
	case []any:
		return each(v, unknown)
	case string:
		if v == "" || v == "true" || v == "false" || v == Marker {
			return v
		}
		if text, ok := nested(v); ok {
			return text
		}
	}
	return Marker
}

// unknownFields keeps the names of fields. A name without a value may be a secret in braces.
func unknownFields(m map[string]any) map[string]any {
	out := make(map[string]any, len(m))
	for name, v := range eachField(m, func(name string, v any) any {
		if fields, ok := v.(map[string]any); ok && len(fields) > 0 && secretName.MatchString(name) {
			return Marker // a secret with a colon
		}
		return unknown(v)
	}) {
		if v == nil {
			name = Marker
		}
		out[name] = v
	}
	return out
}

// nested redacts a string that is a structure itself: JSON, or an object of Kubernetes. Other
// YAML may be a secret with a colon.
func nested(text string) (string, bool) {
	docs, isJSON, err := decode([]byte(text))
	if err != nil || len(docs) == 0 {
		return "", false
	}
	for i, doc := range docs {
		m, isObject := doc.(map[string]any)
		_, isList := doc.([]any)
		if m["apiVersion"] == nil && namesOf(m) == nil && !(isJSON && (isObject || isList)) {
			return "", false
		}
		docs[i] = Object(doc)
	}
	out, err := encode(docs, isJSON)
	return string(out), err == nil
}

// public keeps certificates, and requests for them, in base64.
func public(v any) any {
	s, _ := v.(string)
	data, err := base64.StdEncoding.DecodeString(s)
	if err != nil || !isPublic(data) {
		return unknown(v)
	}
	return s
}

// isPublic reports whether a text is PEM with certificates, public keys and nothing else.
func isPublic(text []byte) bool {
	rest := bytes.TrimSpace(text)
	for found := false; ; found = true {
		if len(rest) == 0 {
			return found
		}
		var block *pem.Block
		if !bytes.HasPrefix(rest, []byte("-----BEGIN ")) {
			return false
		}
		if block, rest = pem.Decode(rest); block == nil || len(block.Headers) > 0 || !slices.Contains(publicBlocks, block.Type) {
			return false
		}
		rest = bytes.TrimSpace(rest)
	}
}

// data redacts the values of a ConfigMap.
func data(v any) any {
	return fields(v, func(name string, v any) any {
		text, _ := v.(string)
		switch {
		case name == "Corefile":
			if out, err := corefile.Mask(text, Marker, keepInCorefile); err == nil {
				return string(eachLine([]byte(out), Line))
			}
			return Marker
		case isPublic([]byte(text)):
			return text
		}
		return unknown(v)
	})
}

// corefileArgument matches numbers, durations, addresses, names of zones and files.
var corefileArgument = regexp.MustCompile(`^(?:\.|:?[0-9]{1,5}(?:ms|s|m|h|%)?|(?:(?:tls|dns)://)?[0-9A-Fa-f:.\[\]]*[:.][0-9A-Fa-f:.\[\]]*(?:/[0-9]{1,3}|%\w+)?|(?:[a-z0-9_-]+\.)+[a-z0-9-]*|/(?:etc|run|var)/[\w./-]+)$`)

// keepInCorefile reports whether an argument of a plugin, or of its option, may be shown.
func keepInCorefile(plugin, option, argument string) bool {
	return corefileNames[plugin] && (option == "" || corefileNames[option]) && (corefileWords[argument] || corefileArgument.MatchString(argument))
}

// annotations redacts annotations, except annotations of Kubernetes' own components.
func annotations(v any) any {
	return fields(v, func(name string, v any) any {
		if text, ok := v.(string); ok && (harmlessAnnotations[name] || strings.HasPrefix(name, "kubeadm.kubernetes.io/") || strings.HasPrefix(name, "flannel.alpha.coreos.com/")) {
			return plain(text)
		}
		return unknown(v)
	})
}

func each(list []any, redact func(any) any) []any {
	out := make([]any, len(list))
	for i, v := range list {
		out[i] = redact(v)
	}
	return out
}

// fieldName matches the names of fields, keys, labels and registries, which may be URLs.
var fieldName = regexp.MustCompile(`^(?:[a-z]+://)?(?:[\w./@*-]|\[[\w:]*\])*(?::[0-9]{1,5}[\w./-]*)?$`)

// fields redacts the values of an object. Anything else is unknown.
func fields(v any, redact func(name string, v any) any) any {
	m, ok := v.(map[string]any)
	if !ok {
		return unknown(v)
	}
	return eachField(m, redact)
}

// eachField redacts the values of an object. Also a name may have a secret: a URL, or a text that
// was no YAML.
func eachField(m map[string]any, redact func(name string, v any) any) map[string]any {
	out := make(map[string]any, len(m))
	for name, v := range m {
		shown := plain(name)
		if !fieldName.MatchString(shown) {
			shown = Marker
		}
		out[shown] = redact(name, v)
	}
	return out
}

// namesOf returns the list of harmless names for configurations without a kind, or nil.
func namesOf(v map[string]any) map[string]bool {
	_, cni := v["cniVersion"]
	_, network := v["Network"]
	_, backend := v["Backend"]
	if cni || network && backend {
		return cniNames
	}
	_, addresses := v["addresses"]
	if _, uid := v["uid"]; addresses && (uid && len(v) == 2 || len(v) == 1) {
		return recordNames
	}
	return nil
}
