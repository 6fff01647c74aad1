package spec_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"

	"airlift/installer/multihost/spec"
)

func compiledSchema(t testing.TB) *jsonschema.Schema {
	t.Helper()
	text, err := spec.Schema()
	if err != nil {
		t.Fatal(err)
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("cluster.schema.json", document); err != nil {
		t.Fatal(err)
	}
	return compiler.MustCompile("cluster.schema.json")
}

// documentsOf decodes the documents of a file as an editor does.
func documentsOf(t interface{ Fatal(...any) }, text string) (list []any) {
	for d := yaml.NewDecoder(strings.NewReader(text)); ; {
		var value any
		switch err := d.Decode(&value); {
		case errors.Is(err, io.EOF):
			return list
		case err != nil:
			t.Fatal(err)
		}
		text, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		decoded, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, decoded)
	}
}

func TestSchemaAcceptsTheExamples(t *testing.T) {
	schema := compiledSchema(t)
	for _, text := range []string{spec.Example(), spec.Uncommented(), whole} {
		for _, d := range documentsOf(t, text) {
			if err := schema.Validate(d); err != nil {
				t.Error(err)
			}
		}
	}
	if !strings.HasPrefix(spec.Example(), "# yaml-language-server: $schema=") {
		t.Error("the example names no schema")
	}
}

// Each field has a description.
func TestSchemaDescribesEachField(t *testing.T) {
	text, err := spec.Schema()
	if err != nil {
		t.Fatal(err)
	}
	var document map[string]any
	if err := json.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	var look func(value any)
	look = func(value any) {
		switch v := value.(type) {
		case map[string]any:
			if properties, ok := v["properties"].(map[string]any); ok {
				for _, name := range slices.Sorted(maps.Keys(properties)) {
					p := properties[name].(map[string]any)
					seen[name] = seen[name] || p["description"] != nil || p["const"] != nil
				}
			}
			for _, child := range v {
				look(child)
			}
		case []any:
			for _, child := range v {
				look(child)
			}
		}
	}
	look(document)
	for _, name := range spec.Fields() {
		if !seen[name] {
			t.Errorf("%s has no description: write a comment in example.yaml", name)
		}
	}
}

// mutate draws a change of one value below root. shape reports whether the change is an unknown field, or another type than the
// field has.
func mutate(t *rapid.T, root map[string]any) (what string, shape bool) {
	type place struct {
		path string
		of   map[string]any
		name string
	}
	var places []place
	var collect func(path string, value any)
	collect = func(path string, value any) {
		switch v := value.(type) {
		case map[string]any:
			for _, name := range slices.Sorted(maps.Keys(v)) {
				if path == "" && (name == "kind" || name == "apiVersion") {
					continue
				}
				places = append(places, place{path + "." + name, v, name})
				collect(path+"."+name, v[name])
			}
		case []any:
			for i, item := range v {
				collect(fmt.Sprintf("%s[%d]", path, i), item)
			}
		}
	}
	collect("", root)
	p := rapid.SampledFrom(places).Draw(t, "place")
	free := strings.Contains(p.path, "labels.")
	switch rapid.IntRange(0, 3).Draw(t, "kind of change") {
	case 0:
		delete(p.of, p.name)
		return p.path + " deleted", false
	case 1:
		value := p.of[p.name]
		delete(p.of, p.name)
		p.of[p.name+"x"] = value
		return p.path + " has another name", !free
	case 2:
		value := rapid.SampledFrom([]any{"", "a", "Sat", "worker", "10.0.0.99", "5m", "22:00", 1, 22, 70000, -1, 1.5}).Draw(t, "value")
		p.of[p.name] = value
		return fmt.Sprintf("%s is %#v", p.path, value), false
	default:
		value := rapid.SampledFrom([]any{map[string]any{"a": 1}, []any{[]any{"a"}}, []any{map[string]any{"zz": 1}}, nil}).Draw(t, "value")
		p.of[p.name] = value
		return fmt.Sprintf("%s is %#v", p.path, value), true
	}
}

// The schema accepts what Read accepts, and refuses unknown fields, and values of other types, which Read refuses.
func TestSchemaAgreesWithRead(t *testing.T) {
	schema := compiledSchema(t)
	path := directory(t, "")
	seen := map[string]int{}
	defer func() {
		for _, what := range []string{"both accept", "both refuse", "only Read refuses"} {
			if seen[what] == 0 {
				t.Errorf("no file: %s: %v", what, seen)
			}
		}
	}()
	cluster, _, _ := strings.Cut(whole, "\n---\n")
	rapid.Check(t, func(t *rapid.T) {
		var root map[string]any
		if err := yaml.Unmarshal([]byte(cluster), &root); err != nil {
			t.Fatal(err)
		}
		what, shape := mutate(t, root)
		text, err := yaml.Marshal(root)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(filepath.Dir(path), "cluster.yaml"), text, 0o600); err != nil {
			t.Fatal(err)
		}
		_, read := spec.Read(path)
		refused := schema.Validate(documentsOf(t, string(text))[0])
		switch {
		case read == nil && refused != nil:
			t.Fatalf("%s: Read accepts, and the schema refuses: %v\n%s", what, refused, text)
		case read != nil && refused == nil && shape:
			t.Fatalf("%s: the schema accepts, and Read refuses: %v\n%s", what, read, text)
		case read == nil:
			seen["both accept"]++
		case refused != nil:
			seen["both refuse"]++
		default:
			seen["only Read refuses"]++
		}
	})
}

// Other kinds than kubeadm's, and what every file needs, are refused.
func TestSchemaRefuses(t *testing.T) {
	schema := compiledSchema(t)
	const head = "apiVersion: airlift/v1\nkind: Cluster\nname: a\nhosts: [{name: a, role: control-plane}]\n"
	for _, text := range []string{strings.Replace(head, "name: a\n", "", 1), strings.Replace(head, "role: control-plane", "role: master", 1), strings.Replace(head, "Cluster", "Pod", 1),
		strings.Replace(head, "airlift/v1", "v1", 1), head + "ssh: {port: 0}\n", head + "ssh: {jump: [{user: a}]}\n", head + "roll: {drain: \"yes\"}\n", "kind: InitConfiguration\n", "apiVersion: v1\nkind: ClusterConfiguration\n",
		"apiVersion: kubeadm.k8s.io/v1beta4\nkind: ResetConfiguration\n"} {
		if schema.Validate(documentsOf(t, text)[0]) == nil {
			t.Errorf("accepted:\n%s", text)
		}
	}
}
