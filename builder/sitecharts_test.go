package builder_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"airlift/builder"
	"airlift/bundle"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/fakesites"
)

// chart is a chart with one Deployment, and one object that only a cluster with the API
// version of a CustomResourceDefinition gets.
var chart = map[string]string{
	"Chart.yaml":  "apiVersion: v2\nname: web\nversion: 1.2.3\n",
	"values.yaml": "image: nginx:1.27\n",
	"templates/web.yaml": strings.NewReplacer("name: web\nspec", "name: {{ .Release.Name }}\n  namespace: {{ .Release.Namespace }}\nspec",
		"nginx:1.27", "{{ .Values.image }}").Replace(deployment),
	"templates/thing.yaml": `{{ if .Capabilities.APIVersions.Has "example.com/v1/Thing" }}
apiVersion: example.com/v1
kind: Thing
metadata: {name: thing, annotations: {version: {{ .Capabilities.KubeVersion.Version }} } }
{{ end }}`,
}

const definition = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.com}
spec:
  group: example.com
  names: {kind: Thing, plural: things}
  scope: Cluster
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
`

// chartArchive returns the chart as helm package does.
func chartArchive(t *testing.T) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	w := tar.NewWriter(z)
	for _, name := range []string{"Chart.yaml", "values.yaml", "templates/web.yaml", "templates/thing.yaml"} {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "web/" + name, Mode: 0o644, Size: int64(len(chart[name]))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(chart[name])); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// putChart serves the chart in a repository and returns the digest of its archive.
func putChart(t *testing.T, u *fakesites.Upstream) string {
	t.Helper()
	archive := chartArchive(t)
	sum := fmt.Sprintf("%x", sha256.Sum256(archive))
	u.Put("github.com/site/charts/web-1.2.3.tgz", archive)
	u.Put("github.com/site/charts/index.yaml", []byte("apiVersion: v1\nentries:\n  web:\n  - {name: web, version: 1.2.3, digest: "+sum+", urls: [web-1.2.3.tgz]}\n"))
	return "sha256:" + sum
}

// The file of --registry-auth is also for charts.
func TestChartCredentials(t *testing.T) {
	t.Parallel()
	u := siteUpstream(t)
	putChart(t, u)
	u.Answer = func(w http.ResponseWriter, r *http.Request, target string) bool {
		user, password, _ := r.BasicAuth()
		if target != "github.com/site/charts/index.yaml" || user == "alice" && password == "secret" {
			return false
		}
		http.Error(w, "log in", http.StatusUnauthorized)
		return true
	}
	o := options(t, u)
	o.Site.Manifests = []builder.Manifest{{Name: "web", Chart: &builder.Chart{Source: "https://github.com/site/charts", Name: "web", Version: "1.2.3", Release: "web"}}}
	auth := func(password string) {
		host := strings.TrimPrefix(u.URL(), "http://")
		o.AuthFile = filepath.Join(fakesites.Files(t, map[string]string{"auth.json": `{"auths": {"` + host + `": {"username": "alice", "password": "` + password + `"}}}`}), "auth.json")
	}
	auth("wrong")
	if _, _, err := builder.Resolve(t.Context(), o); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("with another password: %v", err)
	}
	auth("secret")
	if _, _, err := builder.Resolve(t.Context(), o); err != nil {
		t.Error(err)
	}
}

func TestSiteCharts(t *testing.T) {
	t.Parallel()
	u := siteUpstream(t)
	u.Push("docker.io/team/other:v1", fakesites.Image(t, "amd64", "other"))
	digest := putChart(t, u)
	dir := t.TempDir()
	fakesites.WriteFiles(t, dir, map[string]string{"crd.yaml": definition, "values.yaml": "image: other\n", "web.tgz": string(chartArchive(t))})
	for name, content := range chart {
		fakesites.WriteFiles(t, dir, map[string]string{filepath.Join("chart", name): content})
	}
	o := options(t, u)
	o.Site.Manifests = []builder.Manifest{
		{Name: "early", Chart: &builder.Chart{Source: filepath.Join(dir, "chart"), Release: "early"}},
		{Name: "crd", Path: filepath.Join(dir, "crd.yaml")},
		{Name: "late", Namespace: "late", Chart: &builder.Chart{Source: "https://github.com/site/charts", Name: "web", Version: "1.2.3", Digest: digest, Release: "late",
			Values: []string{filepath.Join(dir, "values.yaml")}, Set: []string{"image=team/other:v1"}}},
	}
	o.Site.ImagesFrom = []string{filepath.Join(dir, "web.tgz"), filepath.Join(dir, "chart")}
	r := run(t, o)
	if want := []bundle.SiteManifest{{Name: "early", Chart: "web 1.2.3"}, {Name: "crd"}, {Name: "late", Chart: "web 1.2.3", Namespace: "late"}}; !slices.Equal(r.Manifest.Manifests, want) {
		t.Errorf("%+v", r.Manifest.Manifests)
	}
	all := content(t, r.Path)
	early, late := all["manifests/early.yaml"], all["manifests/late.yaml"]
	if strings.Contains(early, "Thing") || !strings.Contains(early, "image: nginx:1.27\n") {
		t.Errorf("%s", early)
	}
	if !strings.Contains(late, "kind: Thing\n") || !strings.Contains(late, "version: "+version) || !strings.Contains(late, "image: team/other:v1\n") || !strings.Contains(late, "name: late\n") {
		t.Errorf("%s", late)
	}
	for _, want := range []string{"docker.io/library/nginx:1.27", "docker.io/team/other:v1"} {
		if !slices.ContainsFunc(r.Manifest.Images, func(i bundle.Image) bool { return i.Reference == want }) {
			t.Errorf("no image %s", want)
		}
	}
	text, err := os.ReadFile(r.Provenance)
	if err != nil {
		t.Fatal(err)
	}
	var p builder.Provenance
	if err := json.Unmarshal(text, &p); err != nil {
		t.Fatal(err)
	}
	if want := []builder.ProvenanceChart{{Manifest: "early", Chart: "web", Version: "1.2.3"},
		{Manifest: "late", Chart: "web", Version: "1.2.3", URL: "https://github.com/site/charts/web-1.2.3.tgz", Digest: digest}}; !slices.Equal(p.Charts, want) {
		t.Errorf("%+v", p.Charts)
	}
}

func TestSiteChartRefusals(t *testing.T) {
	t.Parallel()
	u := siteUpstream(t)
	putChart(t, u)
	o := options(t, u)
	wrong := "sha256:" + strings.Repeat("ab", 32)
	o.Site.Manifests = []builder.Manifest{{Name: "web", At: "bundle.yaml:3",
		Chart: &builder.Chart{Source: "https://github.com/site/charts", Name: "web", Version: "1.2.3", Digest: wrong}}}
	_, err := runOne(context.Background(), o)
	if err == nil || !strings.HasPrefix(err.Error(), `bundle.yaml:3: manifest "web": `) || !strings.Contains(err.Error(), wrong) || fault.Hint(err) == "" {
		t.Error(err)
	}
	o.Site = builder.Site{ImagesFrom: []string{"oci://registry.example.com/charts/web"}}
	if _, err := runOne(context.Background(), o); fault.ExitCode(err) != fault.Usage || !strings.Contains(fault.Hint(err), "helm pull") {
		t.Error(err)
	}
	for _, r := range u.Requests() {
		if !strings.HasPrefix(r, "GET github.com/site/") {
			t.Errorf("downloads began: %s", r)
		}
	}
}
