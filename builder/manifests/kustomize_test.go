package manifests_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"airlift/builder/manifests"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/fakesites"
	"airlift/scripts/fixtures/seed"
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
		"https":         {"kustomization.yaml": "resources: [\"https://github.com/team/app/config?ref=v1\"]\n"},
		"github":        {"kustomization.yaml": "resources: [github.com/team/app]\n"},
		"local name":    {"kustomization.yaml": "resources: [github.com/team/app]\n", "github.com/team/app/kustomization.yaml": "resources: []\n"},
		"ssh":           {"kustomization.yml": "bases: ['git@example.com:team/app.git']\n"},
		"component":     {"Kustomization": "components: ['ssh://git@example.com/team/app']\n"},
		"base":          {"kustomization.yaml": "resources: [b]\n", "b/kustomization.yaml": "resources: [http://example.com/a.yaml]\n"},
		"patch":         {"kustomization.yaml": "patches: [{path: https://example.com/p.yaml}]\n"},
		"files":         {"kustomization.yaml": "configMapGenerator: [{name: a, files: ['k=https://example.com/f']}]\n"},
		"crds":          {"kustomization.yaml": "crds: [https://example.com/f]\n"},
		"openapi":       {"kustomization.yaml": "openapi: {path: https://example.com/f}\n"},
		"replacement":   {"kustomization.yaml": "replacements: [{path: https://example.com/f}]\n"},
		"generator":     {"kustomization.yaml": "generators: [g.yaml]\n", "g.yaml": "apiVersion: builtin\nkind: ConfigMapGenerator\nmetadata: {name: a}\nfiles: ['https://example.com/f']\n"},
		"inline":        {"kustomization.yaml": "generators:\n- |\n  apiVersion: builtin\n  kind: ConfigMapGenerator\n  metadata: {name: a}\n  files: ['https://example.com/f']\n"},
		"another case":  {"kustomization.yaml": "Resources: [\"https://github.com/team/app/config?ref=v1\"]\n"},
		"case of chart": {"kustomization.yaml": "HelmCharts: [{name: a, repo: https://example.com}]\n"},
		"chart":         {"kustomization.yaml": "helmCharts: [{name: a, repo: https://example.com}]\n"},
	} {
		_, err := manifests.Read(fakesites.Files(t, files))
		if err == nil || !strings.Contains(err.Error(), "is not on this machine") && !strings.Contains(err.Error(), "which would be downloaded") || fault.Hint(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Paths in a base begin at the directory that the link leads to, not at the link.
func TestRemoteKustomizationBehindALink(t *testing.T) {
	dir := layout(t, map[string]string{
		"site/kustomization.yaml":      "resources: [base]\n",
		"x/base/kustomization.yaml":    "resources: [../more]\n",
		"x/more/kustomization.yaml":    "resources: [\"https://example.com/a.yaml\"]\n",
		"site/more/kustomization.yaml": "resources: []\n",
	}, map[string]string{"site/base": "../x/base"})
	if _, err := manifests.Read(dir + "/site"); err == nil || !strings.Contains(err.Error(), "is not on this machine") {
		t.Error(err)
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
		"another case":      {map[string]string{"kustomization.yaml": resources + "Resources: [b.yaml]\n", "a.yaml": configMap("a"), "b.yaml": configMap("b")}, "Resources and resources are the same field"},
		"case in a list":    {map[string]string{"kustomization.yaml": resources + "patches: [{path: p.yaml, Path: q.yaml}]\n", "a.yaml": configMap("a")}, "Path and path are the same field"},
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

// kustomize finds the objects that are found without it, or there is an error.
func TestKustomizeFindsTheSameObjects(t *testing.T) {
	random := rand.New(rand.NewPCG(seed.Value(t), 0))
	joints := []string{"---\n", "---\n", "---\r\n", "--- # comment\n", "---\n---\n", "", "\n", "...\n", ",\n", "# comment\n", "--- ", "---",
		"\r---\r", "\u2028---\u2028", "\ufeff", "---\n\ufeff", "\ufeff---\n", "\n--- \t\n", " ---\n", "---\nnull\n", "---\n[]\n"}
	accepted := 0
	for range 400 {
		var text strings.Builder
		for n := range 1 + random.IntN(3) {
			if n > 0 || random.IntN(3) == 0 {
				text.WriteString(joints[random.IntN(len(joints))])
			}
			name := string(rune('a' + n))
			text.WriteString([]string{configMap(name), jsonMap(name), jsonMap(name) + "\n",
				"apiVersion: v1\nkind: List\nitems:\n- " + jsonMap(name) + "\n- " + jsonMap(name+"x") + "\n",
				strings.ReplaceAll(configMap(name), "\n", "\r\n")}[random.IntN(5)])
		}
		dir := fakesites.Files(t, map[string]string{"kustomization.yaml": "resources: [a.yaml]\n", "a.yaml": text.String()})
		direct, err := manifests.Read(dir + "/a.yaml")
		if err != nil {
			direct = nil
		}
		objects, err := manifests.Read(dir)
		if err != nil {
			continue
		}
		accepted++
		var got, want []string
		for _, o := range objects {
			got = append(got, o.String())
		}
		for _, o := range direct {
			want = append(want, o.String())
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%q: kustomize finds %v of %v", text.String(), got, want)
		}
	}
	if accepted < 50 {
		t.Errorf("only %d of 400 are accepted", accepted)
	}
}
