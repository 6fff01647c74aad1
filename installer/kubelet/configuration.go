package kubelet

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	kubeletv1 "k8s.io/kubelet/config/v1beta1"
	utiljson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// readConfig reads the configuration file.
func (c *check) readConfig() {
	c.file, c.merged = make(map[string]any), make(map[string]any)
	if len(c.Config) == 0 {
		return
	}
	if _, err := yaml.YAMLToJSONStrict(c.Config); err != nil && strings.Contains(err.Error(), "already set") {
		c.warn(Configuration, "write each field once", "the KubeletConfiguration contains a field twice: %v", err)
	}
	text, err := yaml.YAMLToJSON(c.Config)
	if err != nil {
		c.fail(Configuration, "correct the YAML", "the KubeletConfiguration cannot be read: %v", err)
		return
	}
	if err := utiljson.UnmarshalCaseSensitivePreserveInts(text, &c.file); err != nil {
		c.fail(Configuration, "write it as name: value, with apiVersion and kind first", "the KubeletConfiguration is not a document of fields: %v", err)
		c.file = make(map[string]any)
		return
	}
	want := map[string]string{"apiVersion": kubeletv1.SchemeGroupVersion.String(), "kind": "KubeletConfiguration"}
	for _, name := range sortedKeys(want) {
		if got := c.file[name]; got != want[name] {
			c.fail(Configuration, fmt.Sprintf("write %s: %s", name, want[name]), "%s is %v: the kubelet of v1.%d accepts only %s", name, orNothing(got), c.minor, want[name])
		}
	}
	c.prune(c.file, "")
	c.merged = clone(c.file)
}

func orNothing(v any) any {
	if v == nil {
		return "missing"
	}
	return fmt.Sprintf("%q", fmt.Sprint(v))
}

// prune removes the fields that the kubelet of this version does not have, with a
// warning: the kubelet ignores them with a line in its log.
func (c *check) prune(m map[string]any, prefix string) {
	for _, name := range sortedKeys(m) {
		path := prefix + name
		if _, ok := facts().Fields.at(path, c.minor); !ok {
			fix := fmt.Sprintf("remove %s", path)
			if hint := facts().Fields.hint(path, c.minor); hint != "" {
				fix += "; " + hint
			}
			c.warn(Configuration, fix, "%s is not a field of the KubeletConfiguration of v1.%d: the kubelet will ignore it", path, c.minor)
			delete(m, name)
			continue
		}
		if !c.within(path) {
			continue
		}
		switch v := m[name].(type) {
		case map[string]any:
			c.prune(v, path+".")
		case []any:
			for _, e := range v {
				if item, ok := e.(map[string]any); ok {
					c.prune(item, path+".")
				}
			}
		}
	}
}

// within reports whether a field has fields of its own; other fields are values,
// or maps with the user's names.
func (c *check) within(path string) bool {
	for known := range facts().Fields {
		if strings.HasPrefix(known, path+".") {
			return true
		}
	}
	return false
}

// decode decodes the merged configuration into Kubernetes' type, one field after
// the other, so that each field of the wrong type is reported.
func (c *check) decode() {
	for _, name := range sortedKeys(c.merged) {
		text, err := json.Marshal(map[string]any{name: c.merged[name]})
		if err == nil {
			next := c.config.DeepCopy()
			if err = utiljson.UnmarshalCaseSensitivePreserveInts(text, next); err == nil {
				c.config = *next
				continue
			}
		}
		why := strings.TrimPrefix(err.Error(), "json: ")
		why = strings.ReplaceAll(why, "Go struct field KubeletConfiguration.", "")
		c.fail(Configuration, fmt.Sprintf("correct %s in %s: it must be %s", name, c.where(name), typeOf(name)), "%s has a value of the wrong type: %s", c.named(name), why)
		delete(c.merged, name)
	}
}

// lookup finds a field by its path.
func lookup(m map[string]any, path string) (any, bool) {
	first, rest, more := strings.Cut(path, ".")
	v, ok := m[first]
	if !ok || v == nil {
		return nil, false
	}
	if !more {
		return v, true
	}
	inner, ok := v.(map[string]any)
	if !ok {
		return nil, false
	}
	return lookup(inner, rest)
}

// store sets a field by its path.
func store(m map[string]any, path string, value any) {
	first, rest, more := strings.Cut(path, ".")
	if !more {
		m[first] = value
		return
	}
	inner, ok := m[first].(map[string]any)
	if !ok {
		inner = make(map[string]any)
		m[first] = inner
	}
	store(inner, rest, value)
}

func clone(m map[string]any) map[string]any {
	out := make(map[string]any, len(m))
	for k, v := range m {
		if inner, ok := v.(map[string]any); ok {
			v = clone(inner)
		}
		out[k] = v
	}
	return out
}

// typeOf describes the type of a field.
func typeOf(name string) string {
	t := reflect.TypeFor[kubeletv1.KubeletConfiguration]()
	for i := range t.NumField() {
		f := t.Field(i)
		if tag, _, _ := strings.Cut(f.Tag.Get("json"), ","); tag != name {
			continue
		}
		ft := f.Type
		if ft.Kind() == reflect.Pointer {
			ft = ft.Elem()
		}
		if ft.Name() == "Duration" {
			return "a duration such as 30s or 5m"
		}
		switch ft.Kind() {
		case reflect.Bool:
			return "true or false"
		case reflect.String:
			return "a string"
		case reflect.Slice:
			return "a list"
		case reflect.Map:
			if ft.Elem().Kind() == reflect.String {
				return "a mapping of names to values, with numbers in quotes"
			}
			return "a mapping of names to values"
		case reflect.Struct:
			return "a mapping of fields"
		default:
			return "a number"
		}
	}
	return "another type"
}
