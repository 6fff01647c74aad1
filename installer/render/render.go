// Package render turns a Config into bytes and API objects: static pods, the configuration of
// kubelet and containerd, units, add-ons. It has no side effects. Its output for a Kubernetes
// version has the same meaning as the output of that version's kubeadm, except for the differences
// that scripts/oracle/differences.go lists with their reasons.
package render

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"sigs.k8s.io/yaml"

	"airlift/installer/config"
	"airlift/internal/fault"
)

// YAML encodes an API object, with its keys sorted, leaving out what the
// server fills in: an empty status and null values such as creationTimestamp.
func YAML(obj any) ([]byte, error) {
	data, err := json.Marshal(obj)
	if err != nil {
		return nil, err
	}
	var doc map[string]any
	if err := json.Unmarshal(data, &doc); err != nil {
		return nil, err
	}
	dropNull(doc)
	if status, ok := doc["status"].(map[string]any); ok && len(status) == 0 {
		delete(doc, "status")
	}
	return yaml.Marshal(doc)
}

func dropNull(value any) {
	switch v := value.(type) {
	case map[string]any:
		for key, item := range v {
			if item == nil {
				delete(v, key)
			} else {
				dropNull(item)
			}
		}
	case []any:
		for _, item := range v {
			dropNull(item)
		}
	}
}

// explicit returns the fields of a component configuration that are set: non-zero values, and
// pointers, also to zero. The Go types come from the newest Kubernetes: a plain encoding would have
// zero values of fields that an older kubelet does not know.
func explicit(obj any) (map[string]any, error) {
	doc, err := explicitFields(reflect.Indirect(reflect.ValueOf(obj)))
	if err != nil {
		return nil, fmt.Errorf("encoding a %T: %w", obj, err)
	}
	return doc, nil
}

func explicitFields(v reflect.Value) (map[string]any, error) {
	doc := map[string]any{}
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		field := v.Field(i)
		if name == "-" || field.IsZero() {
			continue
		}
		_, encodesItself := field.Interface().(json.Marshaler)
		if field.Kind() == reflect.Struct && !encodesItself {
			inner, err := explicitFields(field)
			if err != nil {
				return nil, err
			}
			if name == "" { // embedded
				for k, item := range inner {
					doc[k] = item
				}
			} else if len(inner) > 0 {
				doc[name] = inner
			}
			continue
		}
		if k := field.Kind(); (k == reflect.Map || k == reflect.Slice) && field.Len() == 0 {
			continue
		}
		data, err := json.Marshal(field.Interface())
		if err != nil {
			return nil, err
		}
		var item any
		if err := json.Unmarshal(data, &item); err != nil {
			return nil, err
		}
		doc[name] = item
	}
	return doc, nil
}

// image is the bundle's image of a component.
func image(cfg *config.Config, component string) (string, error) {
	if ref := cfg.Images[component]; ref != "" {
		return ref, nil
	}
	return "", fault.New(fault.Bundle, "the bundle has no image for %s", component).Hint("build the bundle again with this component")
}
