package sitefile_test

import (
	"encoding/pem"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"airlift/builder/sitefile"
	"airlift/images/release"
	"airlift/scripts/fixtures/fakesites"
)

// uncommented removes comments from the example as its text describes.
func uncommented() string {
	return regexp.MustCompile(`(?m)^#([^#])`).ReplaceAllString(string(sitefile.Example), "$1")
}

func TestExample(t *testing.T) {
	f, err := read(t, t.TempDir(), string(sitefile.Example))
	if err != nil || f.Version != release.Newest() || len(f.Site.Manifests) > 0 {
		t.Errorf("%+v, %v", f, err)
	}
	whole := uncommented()
	dir := t.TempDir()
	for _, m := range regexp.MustCompile(`(?m)(?:path|source|installed|-): ?([a-z]\S+)$|- ((?:values|SHA256)\S+)$`).FindAllStringSubmatch(whole, -1) {
		path := filepath.Join(dir, m[1]+m[2])
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		content := service
		if m[2] == "SHA256SUMS" {
			content = strings.Repeat("ab", 32) + "  kubectl\n"
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(filepath.Join(dir, "ca.pem"), ca, 0o644); err != nil {
		t.Fatal(err)
	}
	// The versions of components are from a newer release, and no component is for an
	// additional bundle.
	additional := regexp.MustCompile(`(?m)^(only|base): .*\n`)
	f, err = read(t, dir, additional.ReplaceAllString(strings.Replace(whole, "kubernetesVersion: v1.37", "kubernetesVersion: v1.37.99", 1), ""))
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Site.Manifests) != 4 || len(f.Site.Files) != 2 || len(f.Site.Units) != 1 || len(f.Images) != 2 || len(f.CAs) != 1 || len(f.Pins) != 2 {
		t.Errorf("%+v", f)
	}
}

// The fields of an additional bundle, with the fields that the example does not exclude.
func TestExampleOfAnAdditionalBundle(t *testing.T) {
	dir := t.TempDir()
	fakesites.WriteFiles(t, dir, map[string]string{"install.base": "base\n"})
	text := regexp.MustCompile(`(?m)^#(only|base): `).ReplaceAllString(string(sitefile.Example), "$1: ")
	f, err := read(t, dir, text)
	if err != nil || !slices.Equal(f.Only, []string{"images", "manifests"}) || f.Base != filepath.Join(dir, "install.base") {
		t.Errorf("%+v, %v", f, err)
	}
}

// The example names every field of the file.
func TestExampleIsComplete(t *testing.T) {
	var doc map[string]any
	if err := yaml.Unmarshal([]byte(uncommented()), &doc); err != nil {
		t.Fatal(err)
	}
	written := map[string]bool{}
	var collect func(v any)
	collect = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for name, value := range v {
				written[name] = true
				collect(value)
			}
		case []any:
			for _, item := range v {
				collect(item)
			}
		}
	}
	collect(doc)
	for _, name := range sitefile.Fields() {
		if !written[name] {
			t.Errorf("the example has no field %s", name)
		}
		delete(written, name)
	}
	if !reflect.DeepEqual(written, map[string]bool{}) {
		t.Errorf("unknown fields: %v", written)
	}
}
