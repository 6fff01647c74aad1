package builder_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"airlift/builder"
	"airlift/builder/lock"
	"airlift/builder/sbom"
	"airlift/bundle"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/fakesites"
	"airlift/scripts/fixtures/smallfs"
)

const toolReference = "docker.io/team/tool:v1"

// additional returns the options of a build with the manifests of site and one more image.
func additional(t *testing.T, u *fakesites.Upstream) builder.Options {
	t.Helper()
	u.Push(toolReference, fakesites.Image(t, "amd64", "tool"))
	o := options(t, u)
	o.Only = []string{bundle.OnlyManifests, bundle.OnlyImages} // as typed
	o.Site = builder.Site{Manifests: site(t).Manifests}
	o.Images = []string{toolReference}
	u.Forget()
	return o
}

// baseOf builds a full bundle with nginx, and forgets its requests.
func baseOf(t *testing.T, u *fakesites.Upstream) *builder.Result {
	t.Helper()
	o := options(t, u)
	o.Images = []string{"nginx:1.27"}
	r := run(t, o)
	u.Forget()
	return r
}

func manifestOf(t *testing.T, path string) (*bundle.Manifest, string) {
	t.Helper()
	f, err := bundle.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := f.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	return m, f.ManifestSHA256()
}

// layersOf returns the digests of the layers as a registry has them, and their diffIDs.
func layersOf(t *testing.T, img v1.Image) (digests, diffIDs []string) {
	t.Helper()
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range layers {
		digest, err := l.Digest()
		if err != nil {
			t.Fatal(err)
		}
		diffID, err := l.DiffID()
		if err != nil {
			t.Fatal(err)
		}
		digests, diffIDs = append(digests, digest.String()), append(diffIDs, diffID.String())
	}
	return digests, diffIDs
}

func references(m *bundle.Manifest) (list []string) {
	for _, i := range m.Images {
		list = append(list, i.Reference)
	}
	return list
}

// requestsWith returns the requests that contain the text.
func requestsWith(u *fakesites.Upstream, text string) (list []string) {
	for _, q := range u.Requests() {
		if strings.Contains(q, text) {
			list = append(list, q)
		}
	}
	return list
}

func TestAdditional(t *testing.T) {
	t.Parallel()
	u := siteUpstream(t)
	o := additional(t, u)
	r := run(t, o)
	m := r.Manifest
	if !slices.Equal(m.Only, []string{"images", "manifests"}) || m.Base != nil || m.CNI != "none" || m.KubernetesVersion != version || len(m.Components)+len(m.Files)+len(m.Units) > 0 {
		t.Errorf("%+v", m)
	}
	want := []string{toolReference, "registry.k8s.io/etcd:3.5.16-0", "docker.io/library/nginx:1.27"}
	if got := references(m); !slices.Equal(got, want) {
		t.Errorf("images %q, want %q", got, want)
	}
	// Every entry: the manifests, then the documents and layers of each image. All images
	// share their lowest layer.
	names := []string{"manifests/web.yaml", "manifests/config.yaml"}
	seen := map[string]bool{}
	for _, i := range m.Images {
		digests := []string{i.Target.Digest, i.Manifest.Digest, i.Config.Digest}
		for _, l := range i.Layers {
			digests = append(digests, l.DiffID)
		}
		for _, d := range digests {
			if !seen[d] {
				seen[d] = true
				names = append(names, bundle.BlobName(d))
			}
		}
	}
	var got []string
	for _, e := range m.Entries {
		got = append(got, e.Name)
	}
	names = append(names, sbom.CycloneDX.Entry(), sbom.SPDX.Entry())
	if !slices.Equal(got, names) || len(got) != 2+3*3+4-2+2 { // tool and etcd have no index
		t.Errorf("%d entries %q\nwant %q", len(got), got, names)
	}
	all := content(t, r.Path)
	_, diffIDs := layersOf(t, fakesites.Image(t, "amd64", "tool"))
	if layer := all[bundle.BlobName(diffIDs[1])]; layer != string(fakesites.LayerTar(t, "tool/amd64")) {
		t.Errorf("the layer of %s has %d bytes, or others than upstream's", toolReference, len(layer))
	}
	if !strings.Contains(all["manifests/web.yaml"], "kind: Deployment\n") {
		t.Error(all["manifests/web.yaml"])
	}
	for _, host := range []string{"dl.k8s.io", "github.com", "ghcr.io", "kube-", "pause", "coredns", "flannel"} {
		if list := requestsWith(u, host); len(list) > 0 {
			t.Errorf("requests for Kubernetes: %q", list)
		}
	}
	if !strings.Contains(r.Complete, "every image that the workloads in web, config name is in the bundle") {
		t.Error(r.Complete)
	}
	provenance, err := os.ReadFile(r.Provenance)
	if err != nil || !strings.Contains(string(provenance), "\"only\": [\n    \"images\",\n    \"manifests\"\n  ],") || !strings.Contains(string(provenance), `"components": []`) || strings.Contains(string(provenance), `"base"`) {
		t.Errorf("%v\n%s", err, provenance)
	}
}

// The newest release of a minor version is requested, and any later version is possible:
// only charts depend on it.
func TestAdditionalVersions(t *testing.T) {
	t.Parallel()
	u := siteUpstream(t)
	u.Put("dl.k8s.io/release/stable-1.99.txt", []byte("v1.99.3\n"))
	o := additional(t, u)
	for given, want := range map[string]string{"v1.29": version, "1.99": "v1.99.3", "v1.99.1": "v1.99.1"} {
		o.Version = given
		if m := run(t, o).Manifest; m.KubernetesVersion != want || m.NearestKnown != "" {
			t.Errorf("%s became %s, nearest %q", given, m.KubernetesVersion, m.NearestKnown)
		}
	}
	u.Forget()
	for _, old := range []string{"v1.28", "v1.28.1", "v2.1.0", "newest"} {
		o.Version = old
		if _, err := runOne(context.Background(), o); fault.ExitCode(err) != fault.Usage || !strings.Contains(fault.Hint(err), "supported minor versions: v1.29, ") {
			t.Errorf("%s: %v", old, err)
		}
	}
	if list := u.Requests(); len(list) > 0 {
		t.Errorf("requests: %q", list)
	}
}

// otherMinor recognises the warning about a base of another minor version.
func otherMinor(warning string) bool {
	return strings.HasPrefix(warning, "the bundle is for Kubernetes v1.30.1, but the base installs v1.29.15")
}

// A build without a network names the sites of the images, and none of Kubernetes.
func TestAdditionalWithoutNetwork(t *testing.T) {
	t.Parallel()
	u := siteUpstream(t)
	o := additional(t, u)
	o.Images = append(o.Images, "quay.io/team/app:v1")
	u.Close()
	_, err := runOne(context.Background(), o)
	if hint := fault.Hint(err); err == nil || !strings.Contains(hint, "allow access to dl.k8s.io, docker.io, quay.io, registry.k8s.io and the hosts") {
		t.Errorf("err = %v, hint = %s", err, hint)
	}
}

// Layers of the base are neither downloaded nor in the file; all else of their images is.
func TestBase(t *testing.T) {
	t.Parallel()
	u := siteUpstream(t)
	full := baseOf(t, u)
	_, baseSHA256 := manifestOf(t, full.Path)
	o := additional(t, u)
	o.Base = full.Path
	o.SBOM = []sbom.Format{sbom.SPDX}
	r := run(t, o)
	m := r.Manifest

	toolLayers, toolIDs := layersOf(t, fakesites.Image(t, "amd64", "tool"))
	_, etcdIDs := layersOf(t, fakesites.Image(t, "amd64", "etcd"))
	// All images have the lowest layer. Workers do not have etcd's upper layer.
	_, nginxIDs := layersOf(t, fakesites.Image(t, "amd64", "user image"))
	inBase := []string{toolIDs[0], nginxIDs[1]}
	slices.Sort(inBase)
	if !reflect.DeepEqual(m.Base, &bundle.Base{ManifestSHA256: baseSHA256, Layers: inBase}) {
		t.Errorf("base %+v, want %s and %q", m.Base, baseSHA256, inBase)
	}
	for _, id := range inBase {
		if _, ok := m.Entry(bundle.BlobName(id)); ok {
			t.Errorf("layer %s of the base is in the file", id)
		}
	}
	for _, id := range []string{toolIDs[1], etcdIDs[1]} {
		if _, ok := m.Entry(bundle.BlobName(id)); !ok {
			t.Errorf("layer %s, which not all nodes have, is not in the file", id)
		}
	}
	sizes := m.OnlyInBase()
	if r.Base != full.Path || len(sizes) != 2 || sizes[toolIDs[0]] != int64(len(fakesites.LayerTar(t, "base/amd64"))) {
		t.Errorf("base %s, left out: %v", r.Base, sizes)
	}
	// Requested are two layers, and the config of each image.
	if list := requestsWith(u, "GET blobs.example.com"); len(list) != 5 {
		t.Errorf("blobs: %q", list)
	}
	if n := len(requestsWith(u, "GET blobs.example.com/v2/team/tool/blobs/"+toolLayers[1])); n != 1 {
		t.Errorf("the new layer was requested %d times", n)
	}
	if list := requestsWith(u, toolLayers[0]); len(list) > 0 {
		t.Errorf("a layer of the base was requested: %q", list)
	}
	for path, want := range map[string]string{r.Provenance: `"base": "` + baseSHA256 + `"`, r.SBOMs[0]: "2 layers are only in the base, so their packages are not listed"} {
		if text, err := os.ReadFile(path); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s: %v\n%s", path, err, text)
		}
	}
	if slices.ContainsFunc(r.Warnings, otherMinor) {
		t.Errorf("warnings %q", r.Warnings)
	}

	// A cache that has these layers gives the same bytes, and so has a copy of the base.
	again := o
	again.SBOM = nil
	again.CacheDir, again.Output = filepath.Join(filepath.Dir(full.Path), "cache"), o.Output+"-2"
	again.Base = filepath.Join(t.TempDir(), "copy")
	whole, err := os.ReadFile(full.Path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(again.Base, whole, 0o644); err != nil {
		t.Fatal(err)
	}
	if second := run(t, again); second.SHA256 != r.SHA256 {
		t.Errorf("two builds differ: %s, %s", r.SHA256, second.SHA256)
	}

	// A minor version that differs from the base's may be a mistake.
	again.Version = "v1.30.1"
	if w := run(t, again).Warnings; !slices.ContainsFunc(w, otherMinor) {
		t.Errorf("warnings %q", w)
	}
}

// Charts see the CustomResourceDefinitions that the base's manifests have.
func TestBaseWithDefinitions(t *testing.T) {
	t.Parallel()
	u := siteUpstream(t)
	dir := fakesites.Files(t, map[string]string{"crd.yaml": definition})
	for name, content := range chart {
		fakesites.WriteFiles(t, dir, map[string]string{filepath.Join("chart", name): content})
	}
	o := options(t, u)
	o.Site.Manifests = []builder.Manifest{{Name: "crd", Path: filepath.Join(dir, "crd.yaml")}}
	full := run(t, o)
	o = options(t, u)
	o.Only = []string{bundle.OnlyImages, bundle.OnlyManifests}
	o.Site.Manifests = []builder.Manifest{{Name: "web", Chart: &builder.Chart{Source: filepath.Join(dir, "chart"), Release: "web"}}}
	for base, want := range map[string]bool{"": false, full.Path: true} {
		o.Base = base
		if text := content(t, run(t, o).Path)["manifests/web.yaml"]; strings.Contains(text, "kind: Thing\n") != want || !strings.Contains(text, "kind: Deployment\n") {
			t.Errorf("base %q: %s", base, text)
		}
	}
}

// Layers of images that are not in a registry are left out, too.
func TestBaseOfLocalImages(t *testing.T) {
	t.Parallel()
	u := fakesites.New(t, version)
	full := baseWithout(t, u)
	dir, _ := localSources(t)
	o := options(t, u)
	o.Only, o.Base, o.Images = []string{bundle.OnlyImages}, full.Path, []string{"docker-archive:" + dir + "/two.tar"}
	u.Forget()
	m := run(t, o).Manifest
	_, ids := layersOf(t, fakesites.Image(t, "amd64", "registry.example/a:1"))
	if len(m.Images) != 2 || !slices.Equal(m.Base.Layers, ids[:1]) || len(m.Entries) != 2*3+2 {
		t.Errorf("%+v", m)
	}
	if list := u.Requests(); len(list) > 0 {
		t.Errorf("requests %q", list)
	}
}

// baseWithout is baseOf without images of the user.
func baseWithout(t *testing.T, u *fakesites.Upstream) *builder.Result {
	t.Helper()
	return run(t, options(t, u))
}

// Without images, every image must be in the base, on every node.
func TestOnlyManifests(t *testing.T) {
	t.Parallel()
	u := siteUpstream(t)
	full := baseOf(t, u)
	o := additional(t, u)
	o.Only, o.Images, o.Base = []string{bundle.OnlyManifests}, nil, full.Path
	_, err := runOne(context.Background(), o)
	if err == nil || fault.ExitCode(err) != fault.Usage || strings.Contains(err.Error(), "nginx") {
		t.Fatal(err)
	}
	// The base has etcd on control planes only.
	for _, want := range []string{"spec.template.spec.initContainers[0].image", "registry.k8s.io/etcd:3.5.16-0", "(add images to --only: no image of this name is on every node that "} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
	o.Base = ""
	_, err = runOne(context.Background(), o)
	for _, want := range []string{"nginx:1.27", "etcd", "(add images to --only, or name the bundle that has it with --base)"} {
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "--image ") {
			t.Errorf("%q is not in %v", want, err)
		}
	}
	fakesites.WriteFiles(t, filepath.Dir(o.Site.Manifests[0].Path), map[string]string{
		"app.yaml": strings.Replace(deployment, "registry.k8s.io/etcd:3.5.16-0", "registry.k8s.io/pause:3.9", 1)})
	o.Base = full.Path
	r := run(t, o)
	if m := r.Manifest; !slices.Equal(m.Only, []string{"manifests"}) || len(m.Images)+len(m.Base.Layers) > 0 || len(m.Entries) != 2+2 {
		t.Errorf("%+v", m)
	}
	if !strings.Contains(r.Complete, "every image that the workloads in web, config name is in the base, and they contact no registry") {
		t.Error(r.Complete)
	}
	if list := u.Requests(); len(list) > 0 {
		t.Errorf("requests %q", list)
	}
	// An import of the base also records its images by digest.
	fakesites.WriteFiles(t, filepath.Dir(o.Site.Manifests[0].Path), map[string]string{
		"app.yaml": strings.Replace(deployment, "registry.k8s.io/etcd:3.5.16-0", "registry.k8s.io/pause:other@"+imageOf(t, full.Manifest, "pause").Target.Digest, 1)})
	if r := run(t, o); r.Complete == "" {
		t.Error("a pod that names an image of the base by its digest is refused")
	}
	fakesites.WriteFiles(t, filepath.Dir(o.Site.Manifests[0].Path), map[string]string{
		"app.yaml": strings.Replace(deployment, "registry.k8s.io/etcd:3.5.16-0", "registry.k8s.io/pause:3.9@sha256:"+strings.Repeat("a", 64), 1)})
	if _, err := runOne(context.Background(), o); err == nil || !strings.Contains(err.Error(), "is not in the bundle") {
		t.Errorf("err = %v", err)
	}
	// Manifests without workloads need no base.
	o.Base, o.Site.Manifests = "", o.Site.Manifests[1:]
	if m := run(t, o).Manifest; m.Base != nil || len(m.Entries) != 1+2 {
		t.Errorf("%+v", m)
	}
}

// Manifests that are left out still name the images.
func TestOnlyImages(t *testing.T) {
	t.Parallel()
	u := siteUpstream(t)
	o := additional(t, u)
	o.Only = []string{bundle.OnlyImages}
	r := run(t, o)
	if m := r.Manifest; len(m.Manifests) > 0 || len(m.Images) != 3 || strings.HasPrefix(m.Entries[0].Name, bundle.ManifestDir) {
		t.Errorf("%+v", m)
	}
	if !strings.HasSuffix(r.Complete, "every image that the workloads in web, config name is in the bundle") {
		t.Error(r.Complete)
	}
}

func TestAdditionalRefusals(t *testing.T) {
	t.Parallel()
	u := siteUpstream(t)
	full := baseOf(t, u)
	more := run(t, additional(t, u))
	u.Forget()
	both := []string{bundle.OnlyImages, bundle.OnlyManifests}
	for name, c := range map[string]struct {
		change     func(o *builder.Options)
		want, hint string
		code       fault.Code
	}{
		"another kind":        {func(o *builder.Options) { o.Only = []string{"images", "files"} }, `--only "files": an additional bundle cannot have this`, "images, manifests or both", fault.Usage},
		"a base without only": {func(o *builder.Options) { o.Only, o.Base = nil, full.Path }, "--base is only for additional bundles", "--only images,manifests", fault.Usage},
		"files":               {func(o *builder.Options) { o.Site.Files = site(t).Files[1:2] }, `bundle.yaml:7: an additional bundle cannot have the file "/etc/motd"`, "without --only", fault.Usage},
		"versions":            {func(o *builder.Options) { o.Versions.Etcd = "3.5.16-0" }, "an additional bundle has no components", "remove", fault.Usage},
		"require":             {func(o *builder.Options) { o.Require = []string{"crictl"} }, "an additional bundle has no components", "--require", fault.Usage},
		"images that are left out": {func(o *builder.Options) { o.Only = both[1:] },
			"--only manifests leaves out the images", "--only images,manifests", fault.Usage},
		"images from, that are left out": {func(o *builder.Options) { o.Only, o.Images, o.Site.ImagesFrom = both[1:], nil, []string{"app.yaml"} },
			"--only manifests leaves out the images", "--only images,manifests", fault.Usage},
		"nothing": {func(o *builder.Options) { o.Images, o.Site.Manifests = nil, nil }, "the bundle would be empty: there is nothing of --only images,manifests", "--image", fault.Usage},
		"an additional base": {func(o *builder.Options) { o.Base = more.Path },
			fmt.Sprintf("the base %q is itself an additional bundle", more.Path), "that the nodes were installed from", fault.Usage},
		"another platform": {func(o *builder.Options) { o.Base, o.Arch = full.Path, "arm64" }, "is for linux/amd64, not for linux/arm64", "--arch", fault.Usage},
		"no base":          {func(o *builder.Options) { o.Base = "none" }, "reading the base: open none: no such file", "", fault.Bundle},
		"a base that is no bundle": {func(o *builder.Options) { o.Base = full.Provenance },
			"reading the base: ", "", fault.Bundle},
		"the base as output": {func(o *builder.Options) { o.Base, o.Output = full.Path, full.Path }, "is the base", "--out", fault.Usage},
	} {
		o := additional(t, u)
		c.change(&o)
		_, err := runOne(context.Background(), o)
		if err == nil || !strings.Contains(err.Error(), c.want) || fault.ExitCode(err) != c.code || !strings.Contains(fault.Hint(err), c.hint) {
			t.Errorf("%s: exit code %d, %v; hint %q", name, fault.ExitCode(err), err, fault.Hint(err))
		}
	}
	if list := u.Requests(); len(list) > 0 {
		t.Errorf("requests %q", list)
	}
	// The file that would have been replaced is still the base.
	if m, _ := manifestOf(t, full.Path); m.Additional() {
		t.Error("the base was replaced")
	}
}

// A lock pins the base and the kinds of content, and no components.
func TestAdditionalLock(t *testing.T) {
	t.Parallel()
	u := siteUpstream(t)
	full := baseOf(t, u)
	_, baseSHA256 := manifestOf(t, full.Path)
	o := additional(t, u)
	o.Version, o.Base, o.LockPath = "v1.29", full.Path, "more.lock"
	l, _, err := builder.Resolve(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	if l.Base != baseSHA256 || !slices.Equal(l.Only, []string{"images", "manifests"}) || len(l.Components)+len(l.LeftOut) > 0 || len(l.Images) != 3 || len(l.Manifests) != 2 || l.KubernetesVersion != version {
		t.Errorf("%+v", l)
	}
	path := filepath.Join(t.TempDir(), "more.lock")
	if err := lock.Write(path, l); err != nil {
		t.Fatal(err)
	}
	all, err := lock.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	o.Lock = all[0]
	u.Push("docker.io/library/nginx:1.27", fakesites.Image(t, "amd64", "a new nginx"))
	u.Put("dl.k8s.io/release/stable-1.29.txt", []byte("v1.29.16\n"))
	u.Forget()
	run(t, o)
	if list := asked(u); len(list) > 0 {
		t.Errorf("a locked build requested %q", list)
	}

	o.Base = baseWithout(t, u).Path
	_, other := manifestOf(t, o.Base)
	o.Only = []string{bundle.OnlyImages}
	_, err = runOne(context.Background(), o)
	for _, want := range []string{"\n  only\n    pinned: images, manifests\n    now:    images\n", "\n  base\n    pinned: " + baseSHA256 + "\n    now:    " + other} {
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(fault.Hint(err), "bundle update") {
			t.Errorf("%q is not in %v", want, err)
		}
	}
}

// The space for layers of the base is not needed.
func TestBaseSavesSpace(t *testing.T) {
	u := siteUpstream(t)
	random := make([]byte, 2<<20)
	rand.NewChaCha8(sha256.Sum256([]byte("large"))).Read(random)
	large := fakesites.FilesLayer(t, map[string][]byte{"large": random})
	of := func(seed string) v1.Image {
		return fakesites.ImageOf(t, "amd64", large, fakesites.GzipLayer(t, fakesites.LayerTar(t, seed)))
	}
	u.Push("docker.io/team/large:v1", of("one"))
	u.Push("docker.io/team/large:v2", of("two"))
	o := options(t, u)
	o.Images = []string{"team/large:v1"}
	full := run(t, o)

	o = options(t, u)
	o.Only, o.Images = []string{bundle.OnlyImages}, []string{"team/large:v2"}
	dir := smallfs.Small(t, 1<<20)
	o.CacheDir, o.Output = filepath.Join(dir, "cache"), filepath.Join(dir, "more")
	if err := os.Mkdir(o.CacheDir, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := runOne(context.Background(), o); err == nil || !strings.Contains(err.Error(), "the downloads and the bundle (estimated)") {
		t.Errorf("err = %v", err)
	}
	o.Base = full.Path
	r := run(t, o)
	if got, err := os.ReadFile(r.Path); err != nil || bytes.Contains(got, random[:1000]) || len(got) > 1<<20 {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}
