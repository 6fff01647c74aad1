package kubeletcheck

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kubeletv1 "k8s.io/kubelet/config/v1beta1"
	utiljson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"airlift/installer/config"
)

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// Merge returns a KubeletConfiguration in JSON, on which the files *.conf below a directory are laid as the kubelet lays those of
// --config-dir: as merge patches (RFC 7386), in the order of their paths. files are their paths. A relative directory is in the
// kubelet's working directory, which is / under systemd.
func Merge(document []byte, root fs.FS, dir string) (merged []byte, files []string, err error) {
	if merged, err = yaml.YAMLToJSON(document); err != nil {
		return nil, nil, err
	}
	if len(document) == 0 {
		merged = []byte("{}")
	}
	err = fs.WalkDir(root, cmp.Or(strings.TrimPrefix(path.Clean("/"+dir), "/"), "."), func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Ext(name) != ".conf" {
			return err
		}
		data, err := fs.ReadFile(root, name)
		if err == nil {
			data, err = yaml.YAMLToJSON(data)
		}
		if err == nil {
			err = isConfiguration(data)
		}
		if err == nil {
			merged, err = jsonpatch.MergePatch(merged, data)
		}
		if err != nil {
			return fmt.Errorf("/%s: %w", name, err)
		}
		files = append(files, "/"+name)
		return nil
	})
	return merged, files, err
}

// environment reports whether the file that the kubelet's unit reads for the administrator sets a variable.
func (c *check) environment(name string) bool {
	if c.Root == nil {
		return false
	}
	data, err := fs.ReadFile(c.Root, "etc/default/kubelet")
	return err == nil && regexp.MustCompile(`(?m)^[ \t]*`+name+`=`).Match(data)
}

// isConfiguration refuses a document that the kubelet does not lay on its configuration.
func isConfiguration(document []byte) error {
	var is metav1.TypeMeta
	err := json.Unmarshal(document, &is)
	if want := kubeletv1.SchemeGroupVersion.WithKind("KubeletConfiguration"); err == nil && is.GroupVersionKind() != want {
		err = fmt.Errorf("it must have apiVersion: %s and kind: %s", want.GroupVersion(), want.Kind)
	}
	return err
}

// readConfig reads the configuration file, and what --config-dir adds to it.
func (c *check) readConfig() {
	c.merged = make(map[string]any)
	var err error
	text := c.Config
	if len(text) > 0 {
		if text, err = yaml.YAMLToJSONStrict(c.Config); err != nil && strings.Contains(err.Error(), "already set") {
			c.warn(Configuration, "write each field once", "the KubeletConfiguration contains a field twice: %v", err)
			text, err = yaml.YAMLToJSON(c.Config)
		}
	}
	if dir, _ := config.LastArg(c.Flags, "config-dir"); dir != "" && c.Root != nil && err == nil {
		merged, _, failed := Merge(text, c.Root, dir)
		if failed != nil {
			c.fail(Configuration, "correct the files *.conf there, or remove the flag", "--config-dir=%s: %v", dir, failed)
		} else {
			text = merged
		}
	}
	if len(text) == 0 && err == nil {
		return
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
		c.option = inner
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
		c.option = name
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
