package adoption

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"airlift/installer/redact"
)

// A manifest is a static pod as its file has it, also with fields that no type has.
type manifest struct {
	fields map[string]any // lists are objects by the names of their items
	shown  map[string]any // the same without secrets
}

// readManifest reads the manifest of a component. Its image and its flags are compared elsewhere.
func readManifest(component string, data []byte) (m manifest, err error) {
	if data, err = yaml.YAMLToJSON(data); err == nil {
		m.fields, err = generic(data)
	}
	shown, _ := redact.Object(m.fields).(map[string]any)
	m.fields, _ = byName(reduced(m.fields, component)).(map[string]any)
	m.shown, _ = byName(reduced(shown, component)).(map[string]any)
	return m, err
}

// usualTypes are the types of kubeadm's volumes. A volume without one does not differ.
var usualTypes = []string{"DirectoryOrCreate", "FileOrCreate", "<nil>"}

// reduced removes from a pod what is compared elsewhere, and what an edit cannot mean. Volumes have their path as their name.
func reduced(pod map[string]any, component string) map[string]any {
	delete(pod, "status")
	spec, _ := pod["spec"].(map[string]any)
	paths := map[string]string{} // by volume; "" for one of kubeadm's
	volumes := map[string]any{}
	for _, v := range items(spec["volumes"]) {
		name, _ := v["name"].(string)
		source, _ := v["hostPath"].(map[string]any)
		at, isText := source["path"].(string)
		if !isText {
			volumes[name] = v
			continue
		}
		if paths[name] = path.Clean(at); usual(at) && len(v) == 2 && slices.Contains(usualTypes, fmt.Sprint(source["type"])) {
			paths[name] = ""
			continue
		}
		delete(v, "name")
		source["path"] = paths[name]
		volumes[paths[name]] = v
	}
	if spec["volumes"] != nil {
		spec["volumes"] = volumes
	}
	for _, list := range []string{"containers", "initContainers"} {
		for _, c := range items(spec[list]) {
			if list == "containers" && c["name"] == component {
				delete(c, "image")
				delete(c, "command")
				delete(c, "args")
			}
			var mounts []any
			for _, m := range items(c["volumeMounts"]) {
				name, _ := m["name"].(string)
				at, known := paths[name]
				if known && at == "" {
					continue
				}
				m["name"] = cmp.Or(at, name)
				mounts = append(mounts, m)
			}
			if _, is := c["volumeMounts"].([]any); is {
				c["volumeMounts"] = mounts
			}
		}
	}
	return pod
}

// items are the objects in a list.
func items(list any) (objects []map[string]any) {
	all, _ := list.([]any)
	for _, one := range all {
		if o, is := one.(map[string]any); is {
			objects = append(objects, o)
		}
	}
	return objects
}

// byName removes empty values, and makes lists of objects with different names objects: so their order does not matter, as little as
// it does to the kubelet. Two mounts may have one name, but not one path.
func byName(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name, field := range v {
			if v[name] = byName(field); v[name] == nil {
				delete(v, name)
			}
		}
		if len(v) > 0 {
			return v
		}
		return nil
	case []any:
		if len(v) == 0 {
			return nil
		}
		for _, key := range []string{"mountPath", "name"} {
			named := map[string]any{}
			for _, o := range items(v) {
				if name, is := o[key].(string); is {
					named[name] = o
				}
			}
			if len(named) == len(v) {
				return byName(named)
			}
		}
		for i := range v {
			v[i] = byName(v[i])
		}
		return v
	}
	return v
}

// compareManifest reports each difference between a component's manifest and what the stored configuration gives it.
func compareManifest(v *view, component string, is, want manifest) {
	acceptStartupProbe(component, is, want)
	report := func(what, effect string) { v.edited(component, what, effect, keepAsPatch) }
	var compare func(at string, is, want, shownIs, shownWant any)
	compare = func(at string, is, want, shownIs, shownWant any) {
		a, isObject := is.(map[string]any)
		b, wantsObject := want.(map[string]any)
		switch {
		case reflect.DeepEqual(is, want):
		case isObject && wantsObject:
			sa, _ := shownIs.(map[string]any)
			sb, _ := shownWant.(map[string]any)
			for _, name := range union(a, b) {
				compare(below(at, name), a[name], b[name], sa[name], sb[name])
			}
		case want == nil:
			report("has "+at+value(shownIs)+", which is not in the stored configuration", "removes it")
		case is == nil:
			report("has no "+at+value(shownWant)+", which the stored configuration gives", "adds it")
		default:
			report(fmt.Sprintf("has %s%s, and the stored configuration gives%s", at, value(shownIs), strings.TrimPrefix(value(shownWant), ":")), "sets the stored value")
		}
	}
	compare("", is.fields, want.fields, is.shown, want.shown)
}

// below is the path of a field: names with characters that fields cannot have are in brackets.
func below(at, name string) string {
	switch {
	case strings.IndexFunc(name, func(r rune) bool { return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') }) >= 0, strings.HasSuffix(at, "ontainers"), strings.HasSuffix(at, ".env"):
		return at + "[" + redact.Line(name) + "]"
	case at == "":
		return name
	}
	return at + "." + name
}

// value is a colon and the begin of a value without secrets.
func value(shown any) string {
	const longest = 200
	data, err := json.Marshal(shown)
	if err != nil || shown == nil {
		return ": " + redact.Marker
	}
	if len(data) > longest {
		data = append(bytes.ToValidUTF8(data[:longest], nil), "…"...)
	}
	return ": " + string(data)
}

// acceptStartupProbe replaces the startup probe that kubeadm writes, each ten seconds, by the one that an upgrade writes, each second.
func acceptStartupProbe(component string, is, want manifest) {
	container := func(m manifest) map[string]any {
		spec, _ := m.fields["spec"].(map[string]any)
		containers, _ := spec["containers"].(map[string]any)
		c, _ := containers[component].(map[string]any)
		return c
	}
	rendered, _ := container(want)["startupProbe"].(map[string]any)
	threshold, _ := rendered["failureThreshold"].(json.Number)
	seconds, err := threshold.Int64()
	if err != nil {
		return
	}
	kubeadms := maps.Clone(rendered)
	kubeadms["initialDelaySeconds"], kubeadms["periodSeconds"], kubeadms["failureThreshold"] = json.Number("10"), json.Number("10"), json.Number(fmt.Sprint((seconds+9)/10))
	if c := container(is); reflect.DeepEqual(c["startupProbe"], kubeadms) {
		c["startupProbe"] = rendered
	}
}
