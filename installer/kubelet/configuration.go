package kubelet

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kubeletv1 "k8s.io/kubelet/config/v1beta1"
	utiljson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// readConfig reads the configuration file.
func (c *check) readConfig() {
	c.merged = make(map[string]any)
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
	if err := utiljson.UnmarshalCaseSensitivePreserveInts(text, &c.merged); err != nil {
		c.fail(Configuration, "write it as name: value, with apiVersion and kind first", "the KubeletConfiguration is not a document of fields: %v", err)
		c.merged = make(map[string]any)
		return
	}
	c.wantWord("apiVersion", kubeletv1.SchemeGroupVersion.String())
	c.wantWord("kind", "KubeletConfiguration")
	c.prune(c.merged, "")
}

func (c *check) wantWord(field, want string) {
	got := "missing"
	if v := c.merged[field]; v != nil {
		got = fmt.Sprintf("%q", fmt.Sprint(v))
	}
	if c.merged[field] != want {
		c.fail(Configuration, "write "+field+": "+want, "%s is %s: the kubelet of v1.%d accepts only %s", field, got, c.minor, want)
	}
}

// prune removes the fields that the kubelet of this version does not have, with a
// warning: the kubelet ignores them with a line in its log.
func (c *check) prune(m map[string]any, prefix string) {
	fields := facts()["field"]
	for _, name := range sortedKeys(m) {
		path := prefix + name
		if _, ok := fields.at(path, c.minor); !ok {
			c.warn(Configuration, "remove "+path+fields.hint(path, c.minor), "%s is not a field of the KubeletConfiguration of v1.%d: the kubelet will ignore it", path, c.minor)
			delete(m, name)
		} else if hasFields(path) {
			if m[name] == nil {
				delete(m, name) // so that a flag can set its fields
			}
			list, ok := m[name].([]any)
			if !ok {
				list = []any{m[name]}
			}
			for _, e := range list {
				if inner, ok := e.(map[string]any); ok {
					c.prune(inner, path+".")
				}
			}
		}
	}
}

// hasFields reports whether a field has fields. Others have values, or the user's names.
func hasFields(path string) bool {
	for field := range facts()["field"] {
		if strings.HasPrefix(field, path+".") {
			return true
		}
	}
	return false
}

// decode decodes the merged configuration into Kubernetes' type, one field after
// the other, so that each field of the wrong type is reported.
func (c *check) decode() {
	for _, name := range sortedKeys(c.merged) {
		if strings.HasPrefix(name, "--") {
			continue
		}
		next := c.config.DeepCopy()
		text, err := json.Marshal(map[string]any{name: c.merged[name]})
		if err == nil {
			err = utiljson.UnmarshalCaseSensitivePreserveInts(text, next)
		}
		if err == nil {
			c.config = *next
			continue
		}
		why := strings.ReplaceAll(strings.TrimPrefix(err.Error(), "json: "), "Go struct field KubeletConfiguration.", "")
		c.fail(Configuration, fmt.Sprintf("correct %s in %s: it must be %s", name, c.where(name), typeOf(name)), "%s has a value of the wrong type: %s", c.named(name), why)
		delete(c.merged, name)
	}
}

// typeOf describes the type of a field.
func typeOf(name string) string {
	kinds := map[reflect.Kind]string{
		reflect.Bool: "true or false", reflect.String: "a string", reflect.Slice: "a list",
		reflect.Map: "a mapping of names to values", reflect.Struct: "a mapping of fields",
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[kubeletv1.KubeletConfiguration]()) {
		if tag, _, _ := strings.Cut(f.Tag.Get("json"), ","); tag != name {
			continue
		}
		switch t := f.Type; {
		case t == reflect.TypeFor[metav1.Duration]() || t == reflect.TypeFor[*metav1.Duration]():
			return "a duration such as 30s or 5m"
		case t == reflect.TypeFor[map[string]string]():
			return "a mapping of names to values, with numbers in quotes"
		case t.Kind() == reflect.Pointer:
			return cmp.Or(kinds[t.Elem().Kind()], "a number")
		default:
			return cmp.Or(kinds[t.Kind()], "a number")
		}
	}
	return "another type"
}

// value is what an option was set to; nil if it was not.
func (c *check) value(option string) any {
	v, _, _ := unstructured.NestedFieldNoCopy(c.merged, strings.Split(option, ".")...)
	return v
}
