package builder_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"airlift/builder"
	"airlift/bundle"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/fakesites"
)

const deployment = `apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      initContainers:
      - name: wait
        image: registry.k8s.io/etcd:3.5.16-0
      containers:
      - name: web
        image: nginx:1.27
        env:
        - {name: RELATED_IMAGE_TOOL, value: "quay.io/team/tool:v1"}
`

// siteUpstream serves a release and an image of the site.
func siteUpstream(t *testing.T) *fakesites.Upstream {
	u := fakesites.New(t, version)
	u.PushIndex("docker.io/library/nginx:1.27", indexOf(t, "amd64", "arm64"))
	u.Forget()
	return u
}

var large = strings.Repeat("large file\n", 200_000)

// site returns a site whose sources are in a directory of its own.
func site(t *testing.T) builder.Site {
	t.Helper()
	dir := t.TempDir()
	fakesites.WriteFiles(t, dir, map[string]string{
		"app.yaml": deployment, "config/a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n",
		"motd": "hello\n", "large": large, "a.service": "[Install]\nWantedBy=multi-user.target\n",
	})
	file := func(path, mode, nodes, source string) builder.File {
		return builder.File{SiteFile: bundle.SiteFile{Path: path, Mode: mode, Nodes: nodes}, Source: filepath.Join(dir, source), At: "bundle.yaml:7"}
	}
	return builder.Site{
		Manifests: []builder.Manifest{
			{Name: "web", Path: filepath.Join(dir, "app.yaml"), Namespace: "web", At: "bundle.yaml:3"},
			{Name: "config", Path: filepath.Join(dir, "config"), Namespace: "default", At: "bundle.yaml:5"},
		},
		Files: []builder.File{
			file("/srv/z", "0600", bundle.Workers, "large"), file("/etc/motd", "0644", "", "motd"), file("/etc/issue", "0644", "", "motd"),
			file(bundle.UnitDir+"b.service", "0644", bundle.ControlPlanes, "a.service"), file(bundle.UnitDir+"a.service", "0644", "", "a.service"),
		},
		Units: []bundle.SiteUnit{{Name: "b.service", Nodes: bundle.ControlPlanes}, {Name: "a.service"}},
	}
}

// content returns the content of the entries of a bundle, by name.
func content(t *testing.T, path string) map[string]string {
	t.Helper()
	f, err := bundle.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s, err := f.Stream(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	all := map[string]string{}
	for {
		e, r, err := s.Next()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if _, err := b.ReadFrom(r); err != nil {
			t.Fatal(err)
		}
		all[e.Name] = b.String()
	}
}

func TestSite(t *testing.T) {
	t.Parallel()
	u := siteUpstream(t)
	o := options(t, u)
	o.Site = site(t)
	r := run(t, o)
	m := r.Manifest
	if want := []bundle.SiteManifest{{Name: "web", Namespace: "web"}, {Name: "config"}}; !slices.Equal(m.Manifests, want) {
		t.Errorf("%+v", m.Manifests)
	}
	if want := []bundle.SiteUnit{{Name: "a.service"}, {Name: "b.service", Nodes: "control-plane"}}; !slices.Equal(m.Units, want) {
		t.Errorf("%+v", m.Units)
	}
	var paths, kinds []string
	all := content(t, r.Path)
	for _, f := range m.Files {
		paths = append(paths, f.Path+" "+f.Mode+" "+f.Nodes)
		want := map[string]string{"/etc/motd": "hello\n", "/etc/issue": "hello\n", "/srv/z": large}[f.Path]
		if want != "" && all[f.Entry] != want {
			t.Errorf("%s has %.20q", f.Path, all[f.Entry])
		}
	}
	if want := []string{"/etc/issue 0644 ", "/etc/motd 0644 ", "/etc/systemd/system/a.service 0644 ", "/etc/systemd/system/b.service 0644 control-plane", "/srv/z 0600 worker"}; !slices.Equal(paths, want) {
		t.Errorf("%q", paths)
	}
	if !strings.Contains(all["manifests/web.yaml"], "kind: Deployment\n") || !strings.Contains(all["manifests/config.yaml"], "kind: ConfigMap\n") {
		t.Errorf("%q, %q", all["manifests/web.yaml"], all["manifests/config.yaml"])
	}
	// Binaries, then manifests and small files, then the images, then large files.
	for _, e := range m.Entries {
		kind, _, _ := strings.Cut(e.Name, "/")
		if kind == "cni" {
			kind = "bin"
		}
		if len(kinds) == 0 || kinds[len(kinds)-1] != kind {
			kinds = append(kinds, kind)
		}
	}
	if want := []string{"bin", "manifests", "files", "blobs", "files", "sbom"}; !slices.Equal(kinds, want) {
		t.Errorf("%q", kinds)
	}
	if last := m.Entries[len(m.Entries)-3]; last.Size != int64(len(large)) {
		t.Errorf("the last entry is %+v", last)
	}
	// The workloads' images are there, including images that otherwise only control planes have.
	var every []string
	for _, i := range m.Images {
		if i.EveryNode || i.Name == i.Reference {
			every = append(every, i.Reference)
		}
	}
	if want := []string{"registry.k8s.io/etcd:3.5.16-0", "docker.io/library/nginx:1.27"}; !slices.Equal(every, want) {
		t.Errorf("%q", every)
	}
	if !strings.Contains(r.Complete, "every image that the workloads in web, config name is in the bundle") {
		t.Error(r.Complete)
	}
	if !slices.ContainsFunc(r.Warnings, func(w string) bool {
		return strings.Contains(w, "Deployment web") && strings.Contains(w, "quay.io/team/tool:v1") && strings.Contains(w, "--image")
	}) {
		t.Errorf("%q", r.Warnings)
	}
}

// Two builds with two caches, from two directories, with other times and permissions of the
// sources, give the same file.
func TestSameSiteSameBytes(t *testing.T) {
	t.Parallel()
	u := siteUpstream(t)
	sums := map[string]bool{}
	for n := range 2 {
		o := options(t, u)
		o.Level, o.Site = bundle.Default, site(t)
		for _, f := range o.Site.Files {
			at := time.Unix(int64(1e9*n), 0)
			if err := os.Chtimes(f.Source, at, at); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(f.Source, 0o600+os.FileMode(n)*0o111); err != nil {
				t.Fatal(err)
			}
		}
		r := run(t, o)
		whole, err := os.ReadFile(r.Provenance)
		if err != nil {
			t.Fatal(err)
		}
		sums[r.SHA256+string(whole)] = true
	}
	if len(sums) != 1 {
		t.Error("the bundles or their provenances differ")
	}
}

// What cannot work is refused before anything is downloaded.
func TestSiteRefusals(t *testing.T) {
	t.Parallel()
	u := siteUpstream(t)
	always := strings.Replace(deployment, "image: nginx:1.27", "image: nginx:1.27\n        imagePullPolicy: Always", 1)
	for name, c := range map[string]struct {
		change func(o *builder.Options, dir string)
		want   []string
		hint   string
	}{
		"a pod that always pulls": {func(o *builder.Options, dir string) {
			fakesites.WriteFiles(t, dir, map[string]string{"always.yaml": always})
			o.Site.Manifests[0].Path = filepath.Join(dir, "always.yaml")
		}, []string{"the manifests need a registry at the site:\n", "always.yaml:16: Deployment web: spec.template.spec.containers[0].imagePullPolicy", "is Always", "(write imagePullPolicy: IfNotPresent)"}, "imagePullPolicy: IfNotPresent"},
		"an image that is none": {func(o *builder.Options, dir string) {
			fakesites.WriteFiles(t, dir, map[string]string{"bad.yaml": strings.Replace(deployment, "nginx:1.27", "Not An Image", 1)})
			o.Site.Manifests[0].Path = filepath.Join(dir, "bad.yaml")
		}, []string{"bad.yaml:1: Deployment web: spec.template.spec.containers[0].image", "Not An Image"}, "registry.example.com/team/app"},
		"objects that the API server refuses": {func(o *builder.Options, dir string) {
			fakesites.WriteFiles(t, dir, map[string]string{"a.yaml": strings.ReplaceAll(strings.Replace(deployment, "{app: web}}\n    spec", "{app: other}}\n    spec", 1), "name: web\nspec", "name: Web\nspec"),
				"b.yaml": "apiVersion: policy/v1beta1\nkind: PodDisruptionBudget\nmetadata: {name: p}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: late}\n"})
			o.Site.Manifests[0].Path, o.Site.Manifests[1].Path = filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml")
		}, []string{"a.yaml:4: Deployment Web: metadata.name: ", "a.yaml:8: Deployment Web: spec.template.metadata.labels: ", "b.yaml:2: PodDisruptionBudget p: kind: policy/v1beta1",
			"b.yaml:7: ConfigMap late/c: metadata.namespace: no manifest creates the namespace \"late\""}, "correct the manifests"},
		"no objects": {func(o *builder.Options, dir string) {
			fakesites.WriteFiles(t, dir, map[string]string{"none.yaml": "# nothing\n"})
			o.Site.Manifests[0].Path = filepath.Join(dir, "none.yaml")
		}, []string{`bundle.yaml:3: manifest "web": `, "has no Kubernetes objects"}, "manifests"},
		"one object in two manifests": {func(o *builder.Options, dir string) {
			fakesites.WriteFiles(t, dir, map[string]string{"other.yaml": strings.Replace(deployment, "1.27", "1.28", 1)})
			o.Site.Manifests[1] = builder.Manifest{Name: "config", Namespace: "web", Path: filepath.Join(dir, "other.yaml"), At: "bundle.yaml:5"}
		}, []string{`bundle.yaml:5: manifest "config": `, "other.yaml:1: Deployment web is also at ", "app.yaml:1, with another spec.template.spec.containers[0].image"}, "remove one"},
		"one cluster role in manifests of two namespaces": {func(o *builder.Options, dir string) {
			role := "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: reader}\nrules:\n- {apiGroups: [\"\"], resources: [pods], verbs: [get]}\n"
			fakesites.WriteFiles(t, dir, map[string]string{"one.yaml": role, "two.yaml": strings.Replace(role, "get", "list", 1)})
			o.Site.Manifests[0].Path, o.Site.Manifests[1].Path = filepath.Join(dir, "one.yaml"), filepath.Join(dir, "two.yaml")
		}, []string{`bundle.yaml:5: manifest "config": `, "two.yaml:1: ClusterRole reader is also at ", "one.yaml:1, with another rules[0].verbs[0]"}, "remove one"},
		"no such file for images": {func(o *builder.Options, dir string) {
			o.Site.ImagesFrom = []string{filepath.Join(dir, "none")}
		}, []string{"--images-from " /* … */, "no such file"}, "manifests"},
		"a file that is gone": {func(o *builder.Options, dir string) {
			o.Site.Files[0].Source = filepath.Join(dir, "none")
		}, []string{"bundle.yaml:7: ", "no such file"}, "correct the path"},
		"a file that is a directory": {func(o *builder.Options, dir string) { o.Site.Files[0].Source = dir },
			[]string{"bundle.yaml:7: ", "is not a regular file"}, "correct the path"},
		"the pod network's configuration": {func(o *builder.Options, dir string) { o.Site.Files[0].Path = "/etc/cni/net.d/05-site.conflist" },
			[]string{`bundle.yaml:7: "/etc/cni/net.d/05-site.conflist" would replace the configuration of the pod network flannel`}, "--cni none"},
	} {
		o := options(t, u)
		o.Site = site(t)
		c.change(&o, t.TempDir())
		_, err := runOne(context.Background(), o)
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q is not in: %v", name, want, err)
			}
		}
		if fault.ExitCode(err) != fault.Usage || !strings.Contains(fault.Hint(err), c.hint) {
			t.Errorf("%s: exit code %d, hint %q", name, fault.ExitCode(err), fault.Hint(err))
		}
	}
	if got := u.Requests(); len(got) > 0 {
		t.Errorf("downloads began: %v", got)
	}
}

// A cluster-scoped object is one object for manifests of all namespaces. A chart may write its
// namespace there, which the API ignores.
func TestSiteClusterObjectTwice(t *testing.T) {
	t.Parallel()
	o := options(t, siteUpstream(t))
	o.Site = site(t)
	dir := t.TempDir()
	crd := "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: pools.example.com}\n" +
		"spec: {group: example.com, scope: Cluster, names: {kind: Pool, plural: pools}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}\n"
	pool := "apiVersion: example.com/v1\nkind: Pool\nmetadata: {name: a, namespace: %s}\nspec: {size: %d}\n"
	fakesites.WriteFiles(t, dir, map[string]string{"one.yaml": fmt.Sprintf(pool, "web", 1) + "---\n" + crd, "two.yaml": fmt.Sprintf(pool, "other", 1), "three.yaml": fmt.Sprintf(pool, "other", 2)})
	o.Site.Manifests[0].Path, o.Site.Manifests[1].Path = filepath.Join(dir, "one.yaml"), filepath.Join(dir, "two.yaml")
	run(t, o)
	o.Site.Manifests[1].Path = filepath.Join(dir, "three.yaml")
	if _, err := runOne(context.Background(), o); fault.ExitCode(err) != fault.Usage || !strings.Contains(err.Error(), "Pool other/a is also at ") || !strings.Contains(err.Error(), "with another spec.size") {
		t.Errorf("%v", err)
	}
}

// An object may be in two manifests if it is the same, and in two namespaces.
func TestSiteObjectTwice(t *testing.T) {
	t.Parallel()
	u := siteUpstream(t)
	o := options(t, u)
	o.Site = site(t)
	o.Site.Manifests[1].Path, o.Site.Manifests[1].Namespace = o.Site.Manifests[0].Path, "web"
	run(t, o)
	fakesites.WriteFiles(t, filepath.Dir(o.Site.Manifests[0].Path), map[string]string{"other.yaml": strings.Replace(deployment, "name: wait", "name: hold", 1)})
	o.Site.Manifests[1].Path, o.Site.Manifests[1].Namespace = filepath.Join(filepath.Dir(o.Site.Manifests[0].Path), "other.yaml"), "other"
	run(t, o)
}

// imagePullPolicy: Always is replaced on request only.
func TestSitePullPolicy(t *testing.T) {
	t.Parallel()
	u := siteUpstream(t)
	o := options(t, u)
	o.Site = site(t)
	fakesites.WriteFiles(t, filepath.Dir(o.Site.Manifests[0].Path), map[string]string{
		"app.yaml": strings.Replace(deployment, "image: nginx:1.27", "image: nginx:1.27\n        imagePullPolicy: Always", 1)})
	o.Site.Manifests[0].IfNotPresent = true
	if got := content(t, run(t, o).Path)["manifests/web.yaml"]; !strings.Contains(got, "imagePullPolicy: IfNotPresent") || strings.Contains(got, "Always") {
		t.Error(got)
	}
}

// A binary of the bundle is not replaced. The names of CNI plugins are known only when they
// were downloaded.
func TestSiteFileOverBinary(t *testing.T) {
	t.Parallel()
	u := siteUpstream(t)
	for _, path := range []string{"/opt/cni/bin/bridge", "/usr/local/sbin/runc", "/usr/local/bin/kubelet"} {
		o := options(t, u)
		o.Site = site(t)
		o.Site.Files[0].Path = path
		if _, err := runOne(context.Background(), o); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("bundle.yaml:7: %q would replace a binary of the bundle", path)) {
			t.Error(err)
		}
	}
}

// --images-from adds images and no objects. What would make its pods pull is a warning.
func TestImagesFrom(t *testing.T) {
	t.Parallel()
	u := siteUpstream(t)
	o := options(t, u)
	dir := t.TempDir()
	fakesites.WriteFiles(t, dir, map[string]string{"app.yaml": strings.Replace(deployment, "image: nginx:1.27", "image: nginx:1.27\n        imagePullPolicy: Always", 1)})
	o.Site.ImagesFrom = []string{dir}
	r := run(t, o)
	if len(r.Manifest.Manifests) > 0 || !slices.ContainsFunc(r.Manifest.Images, func(i bundle.Image) bool { return i.Reference == "docker.io/library/nginx:1.27" }) {
		t.Errorf("%+v", r.Manifest)
	}
	if !slices.ContainsFunc(r.Warnings, func(w string) bool { return strings.Contains(w, "is Always") }) {
		t.Errorf("%q", r.Warnings)
	}
}

// A large file is read twice. A change in between is an error that names it.
func TestSiteFileChanges(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]string{"another content": strings.ToUpper(large), "more": large + "x", "less": large[1:]} {
		var once sync.Once
		u := siteUpstream(t)
		o := options(t, u)
		o.Site = site(t)
		source := o.Site.Files[0].Source
		// The files are read before the first request.
		u.Answer = func(http.ResponseWriter, *http.Request, string) bool {
			once.Do(func() { fakesites.WriteFiles(t, "/", map[string]string{source: change}) })
			return false
		}
		_, err := runOne(context.Background(), o)
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q changed while the bundle was built", source)) || !strings.Contains(fault.Hint(err), "again") {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Stat(o.Output); err == nil {
			t.Errorf("%s: a bundle was written", name)
		}
	}
}

// A site's software can be one large file and nothing else.
func TestOneLargeFile(t *testing.T) {
	t.Parallel()
	o := options(t, siteUpstream(t))
	o.Site.Files = site(t).Files[:1]
	if r := run(t, o); len(r.Manifest.Files) != 1 || len(r.Manifest.Manifests) != 0 {
		t.Errorf("%+v", r.Manifest.Files)
	}
}

// The order of manifests does not matter, and what only the cluster can know is a warning.
func TestSiteOrder(t *testing.T) {
	t.Parallel()
	o := options(t, siteUpstream(t))
	o.Site = site(t)
	dir := t.TempDir()
	fakesites.WriteFiles(t, dir, map[string]string{
		"one.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: late}\n---\napiVersion: x.example/v1\nkind: Thing\nmetadata: {name: t}\n",
		"two.yaml": "apiVersion: v1\nkind: Namespace\nmetadata: {name: late}\n---\napiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: things.x.example}\n" +
			"spec: {group: x.example, scope: Namespaced, names: {kind: Thing, plural: things}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}\n",
	})
	o.Site.Manifests[0].Path, o.Site.Manifests[1].Path = filepath.Join(dir, "one.yaml"), filepath.Join(dir, "two.yaml")
	run(t, o)
	o.Site.Manifests = o.Site.Manifests[:1]
	_, err := runOne(context.Background(), o)
	for _, want := range []string{`one.yaml:3: ConfigMap late/c: metadata.namespace: no manifest creates the namespace "late"`, "one.yaml:6: Thing t: kind: no manifest defines the kind Thing of x.example"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
	o.Site.Files, o.Site.Units, o.Only = nil, nil, []string{"images", "manifests"}
	if warnings := strings.Join(run(t, o).Warnings, "\n"); !strings.Contains(warnings, `namespace "late": the cluster must have it`) || !strings.Contains(warnings, "Thing of x.example: the cluster must have it") {
		t.Errorf("warnings %q", warnings)
	}
}
