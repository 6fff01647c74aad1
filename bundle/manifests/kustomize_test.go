package manifests_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"airlift/bundle/manifests"
	"airlift/fault"
	"airlift/scripts/fakesites"
)

func TestReadKustomization(t *testing.T) {
	dir := fakesites.Files(t, map[string]string{
		"base/kustomization.yaml":    "resources: [a.yaml]\n",
		"base/a.yaml":                deployment,
		"overlay/kustomization.yaml": "resources: [../base]\nnamePrefix: x-\nimages: [{name: nginx, newName: registry.example.com/nginx, newTag: \"1.28\"}]\nconfigMapGenerator: [{name: c, literals: [\"url=https://example.com\"]}]\ngeneratorOptions: {disableNameSuffixHash: true}\n",
	})
	objects, err := manifests.Read(dir + "/overlay/kustomization.yaml")
	if err != nil {
		t.Fatal(err)
	}
	at := dir + "/overlay "
	if diff := cmp.Diff([]string{at + "v1 ConfigMap x-c", at + "apps/v1 Deployment ns/x-app"}, describe(objects)); diff != "" {
		t.Error(diff)
	}
	found, err := manifests.Images(objects)
	if err != nil || len(found) != 7 || found[1].Reference != "registry.example.com/nginx:1.28" {
		t.Errorf("images: %v, %v", found, err)
	}
}

// A kustomization may not make kustomize use the network, on any way that it has.
func TestRemoteKustomization(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"https":       {"kustomization.yaml": "resources: [\"https://github.com/team/app/config?ref=v1\"]\n"},
		"github":      {"kustomization.yaml": "resources: [github.com/team/app]\n"},
		"local name":  {"kustomization.yaml": "resources: [github.com/team/app]\n", "github.com/team/app/kustomization.yaml": "resources: []\n"},
		"ssh":         {"kustomization.yml": "bases: ['git@example.com:team/app.git']\n"},
		"component":   {"Kustomization": "components: ['ssh://git@example.com/team/app']\n"},
		"base":        {"kustomization.yaml": "resources: [b]\n", "b/kustomization.yaml": "resources: [http://example.com/a.yaml]\n"},
		"patch":       {"kustomization.yaml": "patches: [{path: https://example.com/p.yaml}]\n"},
		"files":       {"kustomization.yaml": "configMapGenerator: [{name: a, files: ['k=https://example.com/f']}]\n"},
		"crds":        {"kustomization.yaml": "crds: [https://example.com/f]\n"},
		"openapi":     {"kustomization.yaml": "openapi: {path: https://example.com/f}\n"},
		"replacement": {"kustomization.yaml": "replacements: [{path: https://example.com/f}]\n"},
		"generator":   {"kustomization.yaml": "generators: [g.yaml]\n", "g.yaml": "apiVersion: builtin\nkind: ConfigMapGenerator\nmetadata: {name: a}\nfiles: ['https://example.com/f']\n"},
		"inline":      {"kustomization.yaml": "generators:\n- |\n  apiVersion: builtin\n  kind: ConfigMapGenerator\n  metadata: {name: a}\n  files: ['https://example.com/f']\n"},
		"chart":       {"kustomization.yaml": "helmCharts: [{name: a, repo: https://example.com}]\n"},
	} {
		_, err := manifests.Read(fakesites.Files(t, files))
		if err == nil || !strings.Contains(err.Error(), "is not on this machine") && !strings.Contains(err.Error(), "which would be downloaded") || fault.Hint(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestBrokenKustomization(t *testing.T) {
	_, err := manifests.Read(fakesites.Files(t, map[string]string{"kustomization.yaml": "resources: [missing.yaml]\n"}))
	if err == nil || !strings.Contains(err.Error(), "missing.yaml") || !strings.Contains(fault.Hint(err), "kubectl kustomize") {
		t.Error(err)
	}
}

// kustomize has its own reader, which ignores other things than kubectl does.
func TestKustomizationIgnoresNothing(t *testing.T) {
	const resources = "resources: [a.yaml]\n"
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"no separator":      {map[string]string{"kustomization.yaml": resources, "a.yaml": configMap("a") + configMap("b")}, "a.yaml:4: ConfigMap.apiVersion is written twice"},
		"document end":      {map[string]string{"kustomization.yaml": resources, "a.yaml": configMap("a") + "...\n" + configMap("b")}, "a.yaml:5: a second document begins here"},
		"JSON":              {map[string]string{"kustomization.yaml": resources, "a.yaml": jsonMap("a") + "\n" + jsonMap("b")}, "a.yaml:2: kustomize does not read this document"},
		"another extension": {map[string]string{"kustomization.yaml": "resources: [a.txt]\n", "a.txt": jsonMap("a") + "\n" + jsonMap("b")}, "a.txt:2: kustomize does not read this document"},
		"UTF-16":            {map[string]string{"kustomization.yaml": resources, "a.yaml": "\xff\xfea\x00"}, "a.yaml:1: the text is UTF-16"},
		"two of them":       {map[string]string{"kustomization.yaml": resources + "---\nresources: [b.yaml]\n", "a.yaml": configMap("a")}, "kustomization.yaml:3: kustomize reads only the first"},
		"resources twice":   {map[string]string{"kustomization.yaml": resources + "resources: [b.yaml]\n", "a.yaml": configMap("a")}, "kustomization.yaml:2: resources is written twice"},
		"component":         {map[string]string{"kustomization.yaml": "components: [c]\n" + resources, "a.yaml": configMap("a"), "c/kustomization.yaml": "kind: Component\napiVersion: kustomize.config.k8s.io/v1alpha1\npatches: [{path: p.yaml}]\n", "c/p.yaml": configMap("a") + "...\n" + configMap("b")}, "c/p.yaml:5: a second document"},
		"inline patch":      {map[string]string{"kustomization.yaml": resources + "patches:\n- patch: |\n    " + jsonMap("a") + "\n    " + jsonMap("b") + "\n", "a.yaml": configMap("a")}, "patches[0].patch:2: kustomize does not read"},
	} {
		_, err := manifests.Read(fakesites.Files(t, c.files))
		if err == nil || !strings.Contains(err.Error(), c.want) || fault.Hint(err) == "" {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	// Data is copied as it is.
	dir := fakesites.Files(t, map[string]string{"kustomization.yaml": "configMapGenerator: [{name: c, files: [d.yaml]}]\n", "d.yaml": "a: 1\na: 2\n...\n{{"})
	if objects, err := manifests.Read(dir); err != nil || len(objects) != 1 {
		t.Error(objects, err)
	}
}
