package kubelet

import (
	"cmp"
	"maps"
	"slices"
	"strings"

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
	text, err := yaml.YAMLToJSONStrict(c.Config)
	if err != nil && strings.Contains(err.Error(), "already set") {
		c.warn(Configuration, "write each field once", "the KubeletConfiguration contains a field twice: %v", err)
		text, err = yaml.YAMLToJSON(c.Config)
	}
	var document any
	if err == nil {
		err = utiljson.UnmarshalCaseSensitivePreserveInts(text, &document)
	}
	fields, ok := document.(map[string]any)
	if err != nil {
		c.fail(Configuration, "correct the YAML", "the KubeletConfiguration cannot be read: %v", err)
	} else if !ok {
		c.fail(Configuration, "write it as name: value, with apiVersion and kind first",
			"the KubeletConfiguration is not a document of fields")
	} else {
		c.merged = fields
		c.prune(fields, "")
		c.wantWord("apiVersion", kubeletv1.SchemeGroupVersion.String())
		c.wantWord("kind", "KubeletConfiguration")
	}
}

func (c *check) wantWord(field, want string) {
	got := "missing"
	if v, ok := c.merged[field]; ok {
		got = show(v)
	}
	if got != show(want) {
		c.fail(Configuration, "write "+field+": "+want,
			"%s is %s: the kubelet of v1.%d accepts only %s", field, got, c.minor, want)
	}
}

// prune removes the fields that the kubelet of this version does not have, with a
// warning: the kubelet ignores them with a line in its log.
func (c *check) prune(v any, path string) {
	known := facts()["field"]
	list, _ := v.([]any)
	for _, e := range list {
		c.prune(e, path)
	}
	fields, _ := v.(map[string]any)
	for _, name := range sortedKeys(fields) {
		inner := strings.TrimPrefix(path+"."+name, ".")
		field, ok := known.at(inner, c.minor)
		if !ok {
			c.warn(Configuration, "remove "+inner+known.hint(inner, c.minor),
				"%s is not a field of the KubeletConfiguration of v1.%d: the kubelet will ignore it", inner, c.minor)
		} else if field.has("struct") {
			c.prune(fields[name], inner)
		}
		if !ok || field.has("struct") && fields[name] == nil { // so that a flag can set its fields
			delete(fields, name)
		}
	}
}

// decode decodes the merged configuration into Kubernetes' type, one field after
// the other, so that each field of the wrong type is reported.
func (c *check) decode() {
	for _, name := range sortedKeys(c.merged) {
		next := c.config.DeepCopy()
		err := utiljson.UnmarshalCaseSensitivePreserveInts([]byte(show(map[string]any{name: c.merged[name]})), next)
		if err == nil {
			c.config = *next
			continue
		}
		field, _ := facts()["field"].at(name, c.minor)
		group, _, _ := strings.Cut(field.is, " ")
		want := cmp.Or(types[field.is].want, types[group].want, "a number")
		why := strings.NewReplacer("json: ", "", "Go struct field KubeletConfiguration.", "").Replace(err.Error())
		c.fail(Configuration, "correct "+name+" in "+c.where(name)+": it must be "+want,
			"%s has a value of the wrong type: %s", c.named(name), why)
		delete(c.merged, name)
	}
}

// value is the value of an option; nil if it is not set.
func (c *check) value(option string) any {
	v, _, _ := unstructured.NestedFieldNoCopy(c.merged, strings.Split(option, ".")...)
	return v
}
