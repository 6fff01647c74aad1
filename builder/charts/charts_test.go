package charts_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"airlift/builder/charts"
	"airlift/builder/fetch"
	"airlift/builder/manifests"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/fakesites"
)

func client(t *testing.T, mirrors ...fetch.Mirror) *charts.Client {
	t.Helper()
	m, err := fetch.NewMirrors(fetch.Transport(), mirrors)
	if err != nil {
		t.Fatal(err)
	}
	return charts.New(m)
}

// app is a chart with what charts have: a subchart with a condition, a CRD, hooks, a test, notes.
var app = map[string]string{
	"Chart.yaml":             "apiVersion: v2\nname: app\nversion: 1.2.3\nappVersion: v9\nkubeVersion: '>=1.29.0-0'\ndependencies: [{name: sub, version: 0.1.0, condition: sub.enabled, repository: ''}]\n",
	"values.yaml":            "image: quay.io/team/app:v9\nsub: {enabled: false, text: outer}\n",
	"values.schema.json":     `{"type": "object", "properties": {"image": {"type": "string"}}}`,
	"crds/crd.yaml":          "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: things.example.com}\n",
	"templates/NOTES.txt":    "Thank you.",
	"templates/_helpers.tpl": `{{- define "app.name" -}}{{ .Release.Name }}-{{ .Chart.Name }}{{- end }}`,
	"templates/deployment.yaml": `apiVersion: apps/v1
kind: Deployment
metadata: {name: {{ include "app.name" . }}, namespace: {{ .Release.Namespace }}}
spec: {template: {spec: {serviceAccountName: app, containers: [{name: app, image: {{ .Values.image | quote }}}]}}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: app}
`,
	"templates/facts.yaml": `apiVersion: v1
kind: ConfigMap
metadata: {name: facts}
data:
  kubernetes: {{ .Capabilities.KubeVersion.Version | quote }}
  deployment: {{ .Capabilities.APIVersions.Has "apps/v1/Deployment" | quote }}
  gone: {{ .Capabilities.APIVersions.Has "policy/v1beta1" | quote }}
  given: {{ .Capabilities.APIVersions.Has "monitoring.coreos.com/v1" | quote }}
  install: {{ .Release.IsInstall | quote }}
  keys: {{ keys .Values | join "," | quote }}
  looked: {{ len (lookup "v1" "Secret" "ns" "password") | quote }}
`,
	"templates/hooks.yaml": `apiVersion: batch/v1
kind: Job
metadata: {name: second, annotations: {helm.sh/hook: "pre-install,pre-upgrade", helm.sh/hook-weight: "2"}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: first, annotations: {helm.sh/hook: pre-install, helm.sh/hook-weight: "-5"}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: app, annotations: {helm.sh/hook: pre-install}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: after, annotations: {helm.sh/hook: post-install}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: upgrade, annotations: {helm.sh/hook: pre-upgrade}}
---
apiVersion: v1
kind: Pod
metadata: {name: test, annotations: {helm.sh/hook: test}}
`,
	"charts/sub/Chart.yaml":          "apiVersion: v2\nname: sub\nversion: 0.1.0\n",
	"charts/sub/values.yaml":         "text: inner\n",
	"charts/sub/templates/text.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: sub}\ndata: {text: {{ .Values.text }}}\n",
}

// with returns the chart with other or additional files. An empty file is left out.
func with(chart map[string]string, changes map[string]string) map[string]string {
	all := map[string]string{}
	for name, content := range chart {
		all[name] = content
	}
	for name, content := range changes {
		if all[name] = content; content == "" {
			delete(all, name)
		}
	}
	return all
}

// pack returns the chart's archive.
func pack(t *testing.T, name string, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	var names []string
	for n := range files {
		names = append(names, n)
	}
	sort.Strings(names)
	for _, n := range names {
		if err := w.WriteHeader(&tar.Header{Name: name + "/" + n, Mode: 0o644, Size: int64(len(files[n]))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(files[n])); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func digestOf(content []byte) string {
	sum := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(sum[:])
}

const kubernetes = "v1.37.1"

func render(t *testing.T, c *charts.Client, want charts.Chart) *charts.Rendering {
	t.Helper()
	if want.KubernetesVersion == "" {
		want.KubernetesVersion = kubernetes
	}
	r, err := c.Render(context.Background(), want)
	if err != nil {
		t.Fatalf("%v (hint %q)", err, fault.Hint(err))
	}
	return r
}

func names(r *charts.Rendering) (list []string) {
	for _, o := range r.Objects {
		list = append(list, o.String())
	}
	return list
}

// find returns the data of a ConfigMap.
func find(t *testing.T, r *charts.Rendering, configMap string) map[string]any {
	t.Helper()
	for _, o := range r.Objects {
		if o.Kind == "ConfigMap" && o.Name == configMap {
			data, _ := o.Content["data"].(map[string]any)
			return data
		}
	}
	t.Fatalf("no ConfigMap %q in %v", configMap, names(r))
	return nil
}

func TestRenderDirectory(t *testing.T) {
	r := render(t, client(t), charts.Chart{Name: fakesites.Files(t, app), Release: "r", Namespace: "ns", APIVersions: []string{"monitoring.coreos.com/v1"}})
	want := []string{
		"CustomResourceDefinition things.example.com", "ServiceAccount first", "Job second",
		"Job upgrade", "ServiceAccount app", "ConfigMap facts", "Deployment ns/r-app", "Job after",
	}
	if diff := cmp.Diff(want, names(r)); diff != "" {
		t.Error(diff)
	}
	if got := r.Name + " " + r.Version + " " + r.Digest; got != "app 1.2.3 " {
		t.Errorf("chart %q", got)
	}
	if diff := cmp.Diff(map[string]any{
		"kubernetes": "v1.37.1", "deployment": "true", "gone": "false", "given": "true", "install": "true", "keys": "image,sub", "looked": "0",
	}, find(t, r, "facts")); diff != "" {
		t.Error(diff)
	}
	notes := strings.Join(r.Notes, "\n")
	if strings.Count(notes, "looks up Secret ns/password") != 1 {
		t.Errorf("notes: %s", notes)
	}
	for name, events := range map[string]string{"second": "pre-install,pre-upgrade", "after": "post-install", "upgrade": "pre-upgrade"} {
		if i := slices.IndexFunc(r.Objects, func(o *manifests.Object) bool { return o.Name == name }); i < 0 || manifests.Hook(r.Objects[i]) != events {
			t.Errorf("the hosts do not see the events of the hook %s", name)
		}
	}
	if r.Objects[len(r.Objects)-2].File != "app/templates/deployment.yaml" {
		t.Errorf("file %q", r.Objects[len(r.Objects)-2].File)
	}
}

func TestValues(t *testing.T) {
	file := filepath.Join(fakesites.Files(t, map[string]string{"v.yaml": "sub: {enabled: true, text: file}\nimage: file\n"}), "v.yaml")
	r := render(t, client(t), charts.Chart{
		Name: fakesites.Files(t, app), ValueFiles: []string{file}, Set: []string{"image=set:1"},
	})
	if got := find(t, r, "sub")["text"]; got != "file" {
		t.Errorf("text %v", got)
	}
	images, err := manifests.Images(r.Objects)
	if err == nil && (len(images) != 1 || images[0].Reference != "docker.io/library/set:1") || err != nil {
		t.Errorf("images %v, %v", images, err)
	}
}

// Two builds must have the same bytes.
func TestSameBytes(t *testing.T) {
	archive := filepath.Join(t.TempDir(), "app.tgz")
	if err := os.WriteFile(archive, pack(t, "app", app), 0o644); err != nil {
		t.Fatal(err)
	}
	var first []byte
	for range 3 {
		r := render(t, client(t), charts.Chart{Name: archive})
		if r.Digest != digestOf(pack(t, "app", app)) {
			t.Errorf("digest %s", r.Digest)
		}
		text, err := manifests.Encode(r.Objects)
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = text
		}
		if diff := cmp.Diff(string(first), string(text)); diff != "" {
			t.Fatal(diff)
		}
	}
}

func TestRandomChart(t *testing.T) {
	for expression, want := range map[string]string{
		"randAlphaNum 10":                          "data.x of Secret random",
		"now | unixEpoch":                          "data.x of Secret random",
		"now | date \"15\"":                        "data.x of Secret random",
		"randInt 1 3":                              "data.x of Secret random",
		"genCA \"a\" 1 | toJson | b64enc":          "data.x of Secret random",
		"uuidv4":                                   "data.x of Secret random",
		"\"x\" }}, {{ uuidv4 }}: {{ \"x\"":         "data",
		".Values.password | default (randAlpha 9)": "data.x of Secret random",
	} {
		chart := with(app, map[string]string{
			"templates/random.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: random}\ndata: {x: {{ " + expression + " }}}\n",
			"templates/sum.yaml":    "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a, annotations: {sum: {{ include (print $.Template.BasePath \"/random.yaml\") . | sha256sum }}}}\nspec: {}\n",
		})
		_, err := client(t).Render(context.Background(), charts.Chart{Name: fakesites.Files(t, chart), KubernetesVersion: kubernetes})
		if err == nil || !strings.Contains(err.Error(), "chart app 1.2.3 generates a new value each time it is rendered: "+want) ||
			!strings.Contains(fault.Hint(err), "app/templates/random.yaml") {
			t.Errorf("%s: %v (hint %q)", expression, err, fault.Hint(err))
		}
	}
	// A value that is set makes it a chart like others.
	chart := with(app, map[string]string{"templates/random.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: random}\ndata: {x: {{ .Values.password | default (randAlpha 9) }}}\n"})
	render(t, client(t), charts.Chart{Name: fakesites.Files(t, chart), Set: []string{"password=x"}})
}

func TestRefusedCharts(t *testing.T) {
	missing := with(app, map[string]string{"charts/sub/Chart.yaml": "", "charts/sub/values.yaml": "", "charts/sub/templates/text.yaml": ""})
	for name, c := range map[string]struct {
		files map[string]string
		chart charts.Chart
		want  string
	}{
		"no chart":    {map[string]string{"a.yaml": "x"}, charts.Chart{}, "is not a Helm chart"},
		"library":     {with(app, map[string]string{"Chart.yaml": "apiVersion: v2\nname: app\nversion: 1.0.0\ntype: library\n"}), charts.Chart{}, `"app" is a library chart`},
		"kubernetes":  {app, charts.Chart{KubernetesVersion: "v1.20.0"}, "requires Kubernetes >=1.29.0-0, but the bundle has v1.20.0"},
		"version":     {app, charts.Chart{KubernetesVersion: "new"}, `kubernetes version "new"`},
		"of a path":   {app, charts.Chart{Version: "1.2.3"}, `is on this machine, but a version ("1.2.3") is given`},
		"schema":      {app, charts.Chart{Set: []string{"image=7"}}, "got number, want string"},
		"set":         {app, charts.Chart{Set: []string{"x"}}, `value "x"`},
		"values file": {app, charts.Chart{ValueFiles: []string{"/nonexistent.yaml"}}, "/nonexistent.yaml"},
		"release":     {app, charts.Chart{Release: "A_B"}, `release "A_B"`},
		"template":    {with(app, map[string]string{"templates/x.yaml": "{{ fail \"set a password\" }}"}), charts.Chart{}, "set a password"},
		"yaml":        {with(app, map[string]string{"templates/x.yaml": "a: [\n"}), charts.Chart{}, "app/templates/x.yaml"},
		"no name":     {with(app, map[string]string{"templates/x.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {generateName: a-}\n"}), charts.Chart{}, `app/templates/x.yaml:1: the Pod has generateName "a-"`},
		"twice":       {with(app, map[string]string{"templates/x.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: facts}\n"}), charts.Chart{}, "ConfigMap facts is also at app/templates/facts.yaml"},
		"dependency":  {missing, charts.Chart{}, `dependency "sub": it is not in the directory charts`},
		"digest":      {app, charts.Chart{Digest: "sha256:00"}, "is a directory, which has no digest"},
	} {
		c.chart.Name = fakesites.Files(t, c.files)
		if c.chart.KubernetesVersion == "" {
			c.chart.KubernetesVersion = kubernetes
		}
		_, err := client(t).Render(context.Background(), c.chart)
		if err == nil || !strings.Contains(err.Error(), c.want) || fault.Hint(err) == "" {
			t.Errorf("%s: %v (hint %q)", name, err, fault.Hint(err))
		}
	}
}

// Nothing in a chart's files is ignored in silence.
func TestNothingIsIgnored(t *testing.T) {
	one, two := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\n", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: two}\n"
	json := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"json"}}`
	for file, c := range map[string]struct{ content, want string }{
		"templates/a.yaml":       {one + two, "app/templates/a.yaml:4: ConfigMap.apiVersion is written twice"},
		"templates/b.yaml":       {one + "...\n" + two, "app/templates/b.yaml:5: a second document begins here"},
		"templates/c.yaml":       {strings.ReplaceAll(one+"---\n"+two, "\n", "\r"), "a second document begins here"},
		"templates/d.yaml":       {"# two\n" + json + "\n" + json, "app/templates/d.yaml:3: a second document begins here"},
		"crds/a.yaml":            {one + "...\n" + two, "crds/a.yaml:5: a second document begins here"},
		"crds/b.json":            {json + ",\n" + json, "crds/b.json:1: not JSON"},
		"Chart.yaml":             {app["Chart.yaml"] + "keywords: [a]\nkeywords: [b]\n", "Chart.yaml of chart app"},
		"values.yaml":            {app["values.yaml"] + "...\nimage: other\n", "values.yaml of chart app"},
		"charts/sub/values.yaml": {"text: inner\ntext: other\n", "values.yaml of chart sub"},
		"charts/sub/Chart.yaml":  {app["charts/sub/Chart.yaml"] + "---\nname: other\n", "Helm does not read a second document"},
		"Chart.lock":             {"dependencies: []\ndependencies: []\n", "Chart.lock of chart app"},
	} {
		dir := fakesites.Files(t, with(app, map[string]string{file: c.content}))
		_, err := client(t).Render(context.Background(), charts.Chart{Name: dir, KubernetesVersion: kubernetes})
		if err == nil || !strings.Contains(err.Error(), c.want) || fault.Hint(err) == "" {
			t.Errorf("%s: %v (hint %q), want %s", file, err, fault.Hint(err), c.want)
		}
	}
	for content, want := range map[string]string{
		"image: a\n...\nimage: b\n":           "line 3: a second document begins here",
		"image: a\nimage: b\n":                "line 2: image is written twice",
		"\xff\xfei\x00":                       "line 1: the text is UTF-16",
		"image: a\n---\n- b\n":                "line 3: json: cannot unmarshal array",
		"{\"image\": \"a\"},\n{\"image\": 1}": "line 1: not JSON",
	} {
		values := fakesites.Files(t, map[string]string{"values.yaml": content}) + "/values.yaml"
		_, err := client(t).Render(context.Background(), charts.Chart{Name: fakesites.Files(t, app), KubernetesVersion: kubernetes, ValueFiles: []string{values}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", content, err, want)
		}
	}
}

// A chart may have a hook of the same name for each event.
func TestHooksOfOneName(t *testing.T) {
	job := func(event, image string) string {
		return "apiVersion: batch/v1\nkind: Job\nmetadata: {name: migrate, annotations: {helm.sh/hook: " + event + "}}\nspec: {template: {spec: {containers: [{name: m, image: " + image + "}]}}}\n"
	}
	chart := with(app, map[string]string{
		"templates/hooks.yaml": "", "templates/install.yaml": job("post-install", "a:1"), "templates/upgrade.yaml": job("post-upgrade", "b:1"), "templates/test.yaml": job("test", "c:1"),
		"templates/delete.yaml": job("pre-delete", "d:1"), "templates/again.yaml": job("pre-delete", "e:1"),
	})
	r := render(t, client(t), charts.Chart{Name: fakesites.Files(t, chart)})
	var events []string
	for _, o := range r.Objects {
		if o.Name == "migrate" {
			events = append(events, manifests.Hook(o))
		}
	}
	if want := []string{"pre-delete", "post-install", "post-upgrade"}; !slices.Equal(events, want) {
		t.Errorf("%q, want %q", events, want)
	}
}

// Helm ignores a hook for an event that it does not know, without a word.
func TestLeftOut(t *testing.T) {
	chart := with(app, map[string]string{
		"templates/hook.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: hook, annotations: {helm.sh/hook: pre-instal}}\n",
	})
	notes := strings.Join(render(t, client(t), charts.Chart{Name: fakesites.Files(t, chart)}).Notes, "\n")
	if strings.Count(notes, "is left out") != 1 || !strings.Contains(notes, "templates/hook.yaml: ConfigMap hook is left out") {
		t.Errorf("notes:\n%s", notes)
	}
}

// Helm would download the other document, past the mirrors.
func TestRemoteSchema(t *testing.T) {
	chart := with(app, map[string]string{"values.schema.json": `{"properties": {"image": {"$ref": "https://example.com/image.json"}}}`})
	r := render(t, client(t), charts.Chart{Name: fakesites.Files(t, chart)})
	if !strings.Contains(strings.Join(r.Notes, "\n"), "refers to https://example.com/image.json and was not used") {
		t.Errorf("notes %v", r.Notes)
	}
}

// served returns a server with files and the paths of the requests that it got.
func served(t *testing.T, files map[string][]byte) (*httptest.Server, *[]string) {
	var requests []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests = append(requests, r.Host+r.URL.Path)
		content, ok := files[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Write(content)
	}))
	t.Cleanup(s.Close)
	return s, &requests
}

func TestRepository(t *testing.T) {
	old := pack(t, "app", with(app, map[string]string{"Chart.yaml": strings.Replace(app["Chart.yaml"], "1.2.3", "1.2.0", 1)}))
	newest := pack(t, "app", app)
	index := "apiVersion: v1\nentries:\n  app:\n" +
		"  - {version: 1.2.0, urls: [charts/app-1.2.0.tgz], digest: " + strings.TrimPrefix(digestOf(old), "sha256:") + "}\n" +
		"  - {version: 1.2.3, urls: ['http://charts.example.com/repo/charts/app-1.2.3.tgz']}\n" +
		"  - {version: 2.0.0-rc.1, urls: [charts/none.tgz]}\n" +
		"  - {version: 0.1.0, urls: [charts/app-1.2.0.tgz], digest: \"0000\"}\n"
	server, requests := served(t, map[string][]byte{
		"/repo/index.yaml": []byte(index), "/repo/charts/app-1.2.0.tgz": old, "/repo/charts/app-1.2.3.tgz": newest,
	})
	mirror, err := fetch.ParseMirror("charts.example.com=" + server.URL)
	if err != nil {
		t.Fatal(err)
	}
	const repository = "http://charts.example.com/repo/"
	for version, want := range map[string]string{"": "1.2.3", "1.2.0": "1.2.0", "~1.2": "1.2.3", "<1.2.3": "1.2.0"} {
		r := render(t, client(t, mirror), charts.Chart{Name: "app", Repository: repository, Version: version})
		if r.Version != want {
			t.Errorf("version %q: %s, want %s", version, r.Version, want)
		}
		if want == "1.2.0" && (r.Digest != digestOf(old) || r.URL != "http://charts.example.com/repo/charts/app-1.2.0.tgz") {
			t.Errorf("digest %s, URL %s", r.Digest, r.URL)
		}
	}
	*requests = nil
	render(t, client(t, mirror), charts.Chart{Name: "app", Repository: repository, Digest: digestOf(newest)})
	if len(*requests) != 2 {
		t.Errorf("requests %v: want the index and the archive, once", *requests)
	}
	for _, c := range []struct {
		chart      charts.Chart
		want, hint string
	}{
		{charts.Chart{Name: "appp", Repository: repository}, `has no chart "appp"`, "did you mean app?"},
		{charts.Chart{Name: "app", Repository: repository, Version: "3.0.0"}, `there is no version "3.0.0"`, "the newest versions are 2.0.0-rc.1, 1.2.3, 1.2.0"},
		{charts.Chart{Name: "app", Repository: repository, Version: "x.y"}, `version "x.y"`, "such as 1.2.3"},
		{charts.Chart{Name: "app", Repository: repository, Version: "0.1.0"}, "but index.yaml lists 0000", "try again"},
		{charts.Chart{Name: "app", Repository: repository, Digest: digestOf(old)}, "is required", "update the lock file"},
		{charts.Chart{Name: "app", Repository: "http://charts.example.com/none"}, "returned 404", "index.yaml"},
		{charts.Chart{Name: "app", Repository: "charts.example.com"}, "is not an http or https URL", "https://"},
		{charts.Chart{Name: "https://charts.example.com/app.tgz"}, "is not an oci:// URL", "repository"},
	} {
		c.chart.KubernetesVersion = kubernetes
		_, err := client(t, mirror).Render(context.Background(), c.chart)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(fault.Hint(err), c.hint) {
			t.Errorf("%+v: %v (hint %q)", c.chart, err, fault.Hint(err))
		}
	}
}

// The password is for the host of the repository only.
func TestRepositoryPassword(t *testing.T) {
	archive := pack(t, "app", app)
	var authorized []string
	record := func(files map[string][]byte) *httptest.Server {
		s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			user, _, _ := r.BasicAuth()
			authorized = append(authorized, r.URL.Path+" "+user)
			w.Write(files[r.URL.Path])
		}))
		t.Cleanup(s.Close)
		return s
	}
	other := record(map[string][]byte{"/app.tgz": archive})
	own := record(map[string][]byte{"/index.yaml": []byte("entries: {app: [{version: 1.2.3, urls: ['" + other.URL + "/app.tgz']}]}\n")})
	host := strings.TrimPrefix(own.URL, "https://")
	config := fakesites.Files(t, map[string]string{"config.json": `{"auths": {"` + host + `": {"username": "alice", "password": "secret"}}}`})
	noCredentials(t)
	t.Setenv("DOCKER_CONFIG", config)
	mirrors, err := fetch.NewMirrors(own.Client().Transport, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := charts.New(mirrors).Render(context.Background(), charts.Chart{Name: "app", Repository: own.URL, KubernetesVersion: kubernetes}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"/index.yaml alice", "/app.tgz "}, authorized); diff != "" {
		t.Error(diff)
	}

	// The file of --registry-auth replaces docker's.
	authorized = nil
	c := charts.New(mirrors)
	c.AuthFile = filepath.Join(fakesites.Files(t, map[string]string{"auth.json": `{"auths": {"` + host + `": {"username": "bob", "password": "secret"}}}`}), "auth.json")
	if _, err := c.Render(context.Background(), charts.Chart{Name: "app", Repository: own.URL, KubernetesVersion: kubernetes}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"/index.yaml bob", "/app.tgz "}, authorized); diff != "" {
		t.Error(diff)
	}
}

// A token in the URL of a repository is in no error, nor is the query of a chart's URL.
func TestNoTokenInErrors(t *testing.T) {
	const token = "s3cr3t-token"
	for name, answer := range map[string]http.HandlerFunc{
		"status":   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) },
		"no index": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "a: [") },
		"no chart": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "entries: {}") },
		"no archive": func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "entries: {app: [{version: 1.2.3, urls: ['http://127.0.0.1:1/app.tgz?sig="+token+"']}]}")
		},
		"redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://"+token+"@127.0.0.1:1/", http.StatusFound)
		},
	} {
		s := httptest.NewTLSServer(answer)
		t.Cleanup(s.Close)
		mirrors, err := fetch.NewMirrors(s.Client().Transport, nil)
		if err != nil {
			t.Fatal(err)
		}
		repository := strings.Replace(s.URL, "://", "://"+token+"@", 1)
		_, err = charts.New(mirrors).Render(t.Context(), charts.Chart{Name: "app", Repository: repository, KubernetesVersion: kubernetes})
		if err == nil || strings.Contains(err.Error()+fault.Hint(err), token) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A redirect to another scheme, host or port never gets the password of the repository, also if
// net/http treats the host as the same site.
func TestRedirectsDoNotGetTheRepositorysPassword(t *testing.T) {
	archive := pack(t, "app", app)
	var redirect string
	authorized := map[string]string{}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		authorized[r.Host+r.URL.Path] = r.Header.Get("Authorization")
		switch r.URL.Path {
		case "/index.yaml":
			io.WriteString(w, "entries: {app: [{version: 1.2.3, urls: [moved.tgz]}]}\n")
		case "/moved.tgz":
			http.Redirect(w, r, redirect+"/app.tgz", http.StatusFound)
		default:
			w.Write(archive)
		}
	}))
	defer server.Close()
	everywhere := server.Client().Transport.(*http.Transport).Clone()
	everywhere.TLSClientConfig.InsecureSkipVerify = true
	everywhere.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, server.Listener.Addr().String())
	}
	noCredentials(t)
	t.Setenv("DOCKER_CONFIG", fakesites.Files(t, map[string]string{"config.json": `{"auths": {"example.com": {"username": "alice", "password": "secret"}}}`}))
	for to, allowed := range map[string]bool{
		"https://example.com": true, "https://example.com:443": true, "": true,
		"https://example.com:8443": false, "https://cdn.example.com": false, "https://a.b.example.com": false, "https://example.com.attacker": false, "https://attacker": false,
	} {
		for _, repository := range []string{"https://example.com", "https://alice:secret@example.com"} {
			redirect = to
			clear(authorized)
			mirrors, err := fetch.NewMirrors(everywhere, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := charts.New(mirrors).Render(t.Context(), charts.Chart{Name: "app", Repository: repository, KubernetesVersion: kubernetes}); err != nil {
				t.Errorf("redirect to %q: %v", to, err)
			}
			host := strings.TrimPrefix(to, "https://")
			if to == "" {
				host = "example.com"
			}
			if got := authorized[host+"/app.tgz"]; (got != "") && !allowed || authorized["example.com/moved.tgz"] == "" {
				t.Errorf("%s redirects to %q, which gets %q; all: %q", repository, to, got, authorized)
			}
		}
	}
}

// noCredentials hides the files of this machine's user.
func noCredentials(t *testing.T) {
	empty := t.TempDir()
	for _, name := range []string{"DOCKER_CONFIG", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME"} {
		t.Setenv(name, empty)
	}
	t.Setenv("REGISTRY_AUTH_FILE", "")
}

// A name that looks like one of this machine is no request for plain http, as for images.
func TestRegistryWithoutTLS(t *testing.T) {
	noCredentials(t)
	server, requests := served(t, nil)
	host := strings.TrimPrefix(server.URL, "http://")
	for _, version := range []string{"1.2.3", "~1.2"} {
		_, err := client(t).Render(context.Background(), charts.Chart{Name: "oci://" + host + "/charts/app", Version: version, KubernetesVersion: kubernetes})
		if err == nil || !strings.Contains(fault.Hint(err), "--mirror "+host+"=http://"+host) {
			t.Errorf("version %q: %v (hint %q)", version, err, fault.Hint(err))
		}
	}
	if len(*requests) > 0 {
		t.Errorf("the registry got the requests %q", *requests)
	}
}

// A registry with a password gets the password from the file of --registry-auth.
func TestRegistryPassword(t *testing.T) {
	noCredentials(t)
	handler := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "alice" || password != "secret" {
			w.Header().Set("WWW-Authenticate", `Basic realm="charts"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "https://")
	archive := pack(t, "app", app)
	image, err := mutate.Append(mutate.MediaType(empty.Image, types.OCIManifestSchema1), mutate.Addendum{Layer: static.NewLayer(archive, "application/vnd.cncf.helm.chart.content.v1.tar+gzip")})
	if err != nil {
		t.Fatal(err)
	}
	ref, err := name.ParseReference(host + "/charts/app:1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	transport := server.Client().Transport
	if err := remote.Write(ref, image, remote.WithTransport(transport), remote.WithAuth(&authn.Basic{Username: "alice", Password: "secret"})); err != nil {
		t.Fatal(err)
	}
	mirrors, err := fetch.NewMirrors(transport, nil)
	if err != nil {
		t.Fatal(err)
	}
	chart := charts.Chart{Name: "oci://" + host + "/charts/app", Version: "~1.2", KubernetesVersion: kubernetes}
	if _, err := charts.New(mirrors).Render(context.Background(), chart); err == nil || !strings.Contains(fault.Hint(err), "docker login "+host) {
		t.Errorf("without credentials: %v (hint %q)", err, fault.Hint(err))
	}
	c := charts.New(mirrors)
	c.AuthFile = filepath.Join(fakesites.Files(t, map[string]string{"auth.json": `{"auths": {"` + host + `/charts": {"username": "alice", "password": "secret"}}}`}), "auth.json")
	if r := render(t, c, chart); r.Digest != digestOf(archive) {
		t.Errorf("digest %s", r.Digest)
	}
	c = charts.New(mirrors)
	c.AuthFile = "/nonexistent.json"
	if _, err := c.Render(context.Background(), chart); err == nil || !strings.Contains(err.Error(), "/nonexistent.json") {
		t.Errorf("with a missing file: %v", err)
	}
}

func TestRegistry(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	plain, err := fetch.ParseMirror(host + "=" + server.URL)
	if err != nil {
		t.Fatal(err)
	}
	archive := pack(t, "app", app)
	push := func(tag, mediaType string) {
		t.Helper()
		image, err := mutate.Append(mutate.MediaType(empty.Image, types.OCIManifestSchema1), mutate.Addendum{Layer: static.NewLayer(archive, types.MediaType(mediaType))})
		if err != nil {
			t.Fatal(err)
		}
		ref, err := name.ParseReference(host + "/charts/app:" + tag)
		if err != nil {
			t.Fatal(err)
		}
		if err := remote.Write(ref, image); err != nil {
			t.Fatal(err)
		}
	}
	const chart = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
	push("1.2.3_b1", chart)
	push("1.2.3", chart)
	push("9.0.0", "application/vnd.oci.image.layer.v1.tar+gzip")
	for _, version := range []string{"1.2.3", "1.2.3+b1", "~1.2"} {
		r := render(t, client(t, plain), charts.Chart{Name: "oci://" + host + "/charts/app", Version: version})
		if r.Digest != digestOf(archive) || !strings.HasPrefix(r.URL, "oci://"+host+"/charts/app:1.2.3") {
			t.Errorf("version %q: digest %s, URL %s", version, r.Digest, r.URL)
		}
	}
	for version, want := range map[string]string{"9.0.0": "is not a Helm chart", "8.0.0": "not found: " + host + "/charts/app:8.0.0", "~3": `there is no version "~3"`} {
		_, err := client(t, plain).Render(context.Background(), charts.Chart{Name: "oci://" + host + "/charts/app", Version: version, KubernetesVersion: kubernetes})
		if err == nil || !strings.Contains(err.Error(), want) || fault.Hint(err) == "" {
			t.Errorf("version %q: %v (hint %q)", version, err, fault.Hint(err))
		}
	}

	// A dependency that is not in the directory charts, from a registry and from a path.
	parent := map[string]string{
		"Chart.yaml":            "apiVersion: v2\nname: parent\nversion: 0.1.0\ndependencies: [{name: app, version: '>=1', repository: 'oci://" + host + "/charts'}, {name: near, version: '*', repository: 'file://near'}]\n",
		"Chart.lock":            "dependencies: [{name: app, version: 1.2.3, repository: 'oci://" + host + "/charts'}]\n",
		"near/Chart.yaml":       "apiVersion: v2\nname: near\nversion: 1.0.0\n",
		"near/templates/a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: near}\n",
	}
	r := render(t, client(t, plain), charts.Chart{Name: fakesites.Files(t, parent)})
	if got := names(r); !slices.Contains(got, "ConfigMap near") || !slices.Contains(got, "ConfigMap facts") {
		t.Errorf("objects %v", got)
	}
}

// Dependencies of one name and several versions, with aliases, are several charts.
func TestDependencyTwice(t *testing.T) {
	sub := func(version string) map[string]string {
		return map[string]string{
			"Chart.yaml":            "apiVersion: v2\nname: sub\nversion: " + version + "\n",
			"templates/config.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Chart.Name }}}\ndata: {version: {{ .Chart.Version }}}\n",
		}
	}
	files, index := map[string][]byte{}, "apiVersion: v1\nentries:\n  sub:\n"
	for _, version := range []string{"1.0.0", "1.5.0", "2.0.0"} {
		files["/sub-"+version+".tgz"] = pack(t, "sub", sub(version))
		index += "  - {version: " + version + ", urls: [sub-" + version + ".tgz]}\n"
	}
	files["/index.yaml"] = []byte(index)
	server, requests := served(t, files)
	parent := map[string]string{"Chart.yaml": "apiVersion: v2\nname: parent\nversion: 0.1.0\ndependencies:\n" +
		"- {name: sub, version: ^1, alias: first, repository: '" + server.URL + "'}\n" +
		"- {name: sub, version: ^2, alias: second, repository: '" + server.URL + "'}\n" +
		"- {name: sub, version: ^2, alias: third, repository: '" + server.URL + "'}\n"}
	lock := "dependencies:\n- {name: sub, version: 1.0.0, repository: '" + server.URL + "'}\n- {name: sub, version: 2.0.0, repository: '" + server.URL + "'}\n"
	vendored := map[string]string{}
	for name, content := range sub("1.0.0") {
		vendored["charts/sub/"+name] = content
	}
	for name, c := range map[string]struct {
		files map[string]string
		first string
		gets  int // of archives
	}{
		"ranges":                     {parent, "1.5.0", 2},
		"with a lock":                {with(parent, map[string]string{"Chart.lock": lock}), "1.0.0", 2},
		"one is there":               {with(parent, vendored), "1.0.0", 1},
		"the other is there, packed": {with(parent, map[string]string{"charts/sub-2.0.0.tgz": string(files["/sub-2.0.0.tgz"])}), "1.5.0", 1},
	} {
		*requests = nil
		r := render(t, client(t), charts.Chart{Name: fakesites.Files(t, c.files)})
		if got := names(r); len(got) != 3 {
			t.Errorf("%s: objects %v", name, got)
			continue
		}
		for alias, want := range map[string]string{"first": c.first, "second": "2.0.0", "third": "2.0.0"} {
			if got := find(t, r, alias)["version"]; got != want {
				t.Errorf("%s: %s has version %v, want %s", name, alias, got, want)
			}
		}
		if gets := len(slices.DeleteFunc(slices.Clone(*requests), func(r string) bool { return !strings.HasSuffix(r, ".tgz") })); gets != c.gets {
			t.Errorf("%s: %d archives were downloaded, want %d: %v", name, gets, c.gets, *requests)
		}
	}
}
