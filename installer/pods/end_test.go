package pods

import (
	"errors"
	"reflect"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestWithAnnotation: the manifest differs in the annotation only.
func TestWithAnnotation(t *testing.T) {
	for name, manifest := range map[string]string{
		"without annotations": "apiVersion: v1\nkind: Pod\nmetadata: {name: etcd}\nspec: {containers: [{name: etcd, ports: [{containerPort: 2381}]}], priority: 2000001000}\n",
		"with another one":    "metadata:\n  annotations: {a: b}\nspec: {noSuchField: 1.5}\n",
	} {
		data, err := withAnnotation([]byte(manifest), "site/x", "now")
		if err != nil {
			t.Fatal(name, err)
		}
		var want, got map[string]any
		if err := errors.Join(yaml.Unmarshal([]byte(manifest), &want), yaml.Unmarshal(data, &got)); err != nil {
			t.Fatal(name, err)
		}
		annotations := got["metadata"].(map[string]any)["annotations"].(map[string]any)
		if annotations["site/x"] != "now" {
			t.Errorf("%s: %v", name, annotations)
		}
		delete(annotations, "site/x")
		if len(annotations) == 0 {
			delete(got["metadata"].(map[string]any), "annotations")
		}
		if !reflect.DeepEqual(want, got) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	if _, err := withAnnotation([]byte("{"), "a", "b"); err == nil {
		t.Error("no YAML: no error")
	}
}
