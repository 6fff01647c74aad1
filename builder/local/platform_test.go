package local_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"airlift/bundle/platform"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/fakesites"
)

const (
	indexType    = ocispec.MediaTypeImageIndex
	manifestType = ocispec.MediaTypeImageManifest
	app          = "registry.example/app:1"
)

func named(d ocispec.Descriptor, name string) ocispec.Descriptor {
	d.Annotations = map[string]string{"org.opencontainers.image.ref.name": name}
	return d
}

func linux(arch, variant string) ocispec.Platform {
	return ocispec.Platform{OS: "linux", Architecture: arch, Variant: variant}
}

// on returns a manifest of the platform, as an index lists it.
func on(d fakesites.Documents, arch, variant string) ocispec.Descriptor {
	p := linux(arch, variant)
	m := d.AddManifest(manifestType, arch+variant, linux(arch, ""))
	m.Platform = &p
	return m
}

// What is read from a layout or an archive is what containerd chooses there.
func TestIndexesEqualContainerd(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	rig := newRig(t)
	equal := 0
	for n := range 200 {
		d := fakesites.Documents{}
		target := d.RandomIndex(r)
		dir := rig.path(fmt.Sprint("layout", n))
		d.Layout(t, dir, named(target, app))
		source := "oci:" + dir
		if n%2 == 0 {
			source = "oci-archive:" + rig.tarOf(dir, "app.tar", compressors["app.tar"])
		}
		for _, arch := range []string{"amd64", "arm64"} {
			want, wantErr := d.Chosen(target, arch)
			list, err := rig.read(arch, source)
			switch {
			case err == nil && wantErr == nil && list[0].Config.Digest == want.String() && list[0].Target.Digest == target.Digest.String():
				equal++
			case err == nil:
				t.Fatalf("%s, index %s: config %s, containerd: %s, %v", arch, d[target.Digest], list[0].Config.Digest, want, wantErr)
			case wantErr == nil && !errors.Is(err, platform.ErrSize) && !strings.Contains(err.Error(), "has no image for") && !strings.Contains(err.Error(), "has no os or no architecture"):
				t.Fatalf("%s, index %s: %v, containerd: %s", arch, d[target.Digest], err, want)
			}
			if err != nil && strings.HasSuffix(err.Error(), "only for ") {
				t.Fatal(err)
			}
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	if equal < 50 {
		t.Errorf("only %d are equal", equal)
	}
}

// Of the manifests with one name in the index of a layout, the one that nodes can use is taken.
func TestVariantsInLayouts(t *testing.T) {
	rig := newRig(t)
	for name, c := range map[string]struct {
		list func(d fakesites.Documents) []ocispec.Descriptor
		want string // the author in the config, or part of the error
	}{
		"a variant first in an index": {func(d fakesites.Documents) []ocispec.Descriptor {
			return []ocispec.Descriptor{d.AddIndex(indexType, on(d, "amd64", "v3"), on(d, "amd64", ""))}
		}, "amd64"},
		"a variant first in the layout": {func(d fakesites.Documents) []ocispec.Descriptor {
			return []ocispec.Descriptor{on(d, "amd64", "v3"), on(d, "amd64", "")}
		}, "amd64"},
		"only a variant": {func(d fakesites.Documents) []ocispec.Descriptor {
			return []ocispec.Descriptor{d.AddIndex(indexType, on(d, "amd64", "v3"))}
		}, "has no image for linux/amd64, only for linux/amd64/v3"},
		"only variants in the layout": {func(d fakesites.Documents) []ocispec.Descriptor {
			return []ocispec.Descriptor{on(d, "amd64", "v3"), on(d, "amd64", "v2"), on(d, "arm64", "v8")}
		}, "has no image for linux/amd64, only for linux/amd64/v2, linux/amd64/v3, linux/arm64/v8"},
		"nothing but an attestation": {func(d fakesites.Documents) []ocispec.Descriptor {
			m := on(d, "unknown", "")
			m.Platform.OS = "unknown"
			return []ocispec.Descriptor{d.AddIndex(indexType, m)}
		}, "lists no image with a platform"},
		"without platforms in the layout": {func(d fakesites.Documents) []ocispec.Descriptor {
			return []ocispec.Descriptor{d.AddManifest(manifestType, "other", linux("arm64", "")), d.AddManifest(manifestType, "amd64", linux("amd64", ""))}
		}, "amd64"},
		"an index in an index": {func(d fakesites.Documents) []ocispec.Descriptor {
			return []ocispec.Descriptor{d.AddIndex(indexType, d.AddIndex(indexType, on(d, "arm64", ""), on(d, "amd64", "")))}
		}, "amd64"},
		"two of one name": {func(d fakesites.Documents) []ocispec.Descriptor {
			return []ocispec.Descriptor{on(d, "amd64", ""), d.AddManifest(manifestType, "second", linux("amd64", ""))}
		}, "two images for linux/amd64 have the name " + app},
	} {
		d := fakesites.Documents{}
		list := c.list(d)
		for n := range list {
			list[n] = named(list[n], app)
		}
		dir := filepath.Join(rig.dir, name)
		d.Layout(t, dir, list...)
		found, err := rig.read("amd64", "oci:"+dir)
		if err != nil {
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		config := fakesites.Cached(t, rig.cache, found[0].Config.Digest)
		if !strings.Contains(string(config), `"author":"`+c.want+`"`) {
			t.Errorf("%s: %s", name, config)
		}
	}
}

// Names with a digest are compared with the image, in every source that has names.
func TestNamesWithDigest(t *testing.T) {
	rig := newRig(t)
	d := fakesites.Documents{}
	amd64 := on(d, "amd64", "")
	inner := d.AddIndex(indexType, amd64, on(d, "arm64", ""))
	target := d.AddIndex(indexType, inner)
	const repository = "registry.example/app"
	wrong := "sha256:" + strings.Repeat("a", 64)
	for name, c := range map[string]struct{ annotation, source, want string }{
		"the annotation's digest":         {repository + "@" + target.Digest.String(), "", repository + "@" + target.Digest.String()},
		"with a tag too":                  {repository + ":1@" + target.Digest.String(), "", repository + "@" + target.Digest.String()},
		"the digest of the manifest":      {repository + "@" + amd64.Digest.String(), "", repository + "@" + amd64.Digest.String()},
		"of the index between":            {repository + "@" + inner.Digest.String(), "", repository + "@" + inner.Digest.String()},
		"given":                           {"v1", ":v1=" + repository + "@" + target.Digest.String(), repository + "@" + target.Digest.String()},
		"selected":                        {repository + "@" + target.Digest.String(), ":" + repository + "@" + target.Digest.String(), repository + "@" + target.Digest.String()},
		"another in the annotation":       {repository + "@" + wrong, "", "which is not the one in its name"},
		"another with a tag":              {repository + ":1@" + wrong, "", "which is not the one in its name"},
		"another that is given":           {"v1", ":v1=" + repository + "@" + wrong, "which is not the one in its name"},
		"another, but a tag is given":     {repository + "@" + wrong, "=" + app, app},
		"a name that has to be completed": {"index.docker.io/nginx:1", "", "docker.io/library/nginx:1"},
	} {
		dir := filepath.Join(rig.dir, name)
		d.Layout(t, dir, named(target, c.annotation))
		archive := rig.tarOf(dir, "app.tar", compressors["app.tar"])
		for _, source := range []string{"oci:" + dir, "oci-archive:" + archive} {
			list, err := rig.read("amd64", source+c.source)
			if err != nil {
				if !strings.Contains(err.Error(), c.want) || fault.Hint(err) == "" {
					t.Errorf("%s: %v (%s)", name, err, fault.Hint(err))
				}
				continue
			}
			got := list[0]
			if _, digest, ok := strings.Cut(got.Reference, "@"); got.Reference != c.want || ok && digest != got.Target.Digest {
				t.Errorf("%s: %s with target %s", name, got.Reference, got.Target.Digest)
			}
			if got.Manifest.Digest != amd64.Digest.String() || len(got.Indexes) > 1 || got.Target.Digest != target.Digest.String() && len(got.Indexes) > 0 {
				t.Errorf("%s: %+v", name, got.Image)
			}
		}
	}
}

// An archive of docker save has no manifest: the image has the digest of the manifest that the build
// makes.
func TestNamesWithDigestOfDocker(t *testing.T) {
	rig := newRig(t)
	archive := func(tag string) string {
		dir := rig.path("docker")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{
			"config.json":   `{"os":"linux","architecture":"amd64","rootfs":{"type":"layers","diff_ids":[]}}`,
			"manifest.json": fmt.Sprintf(`[{"Config":"config.json","RepoTags":[%q],"Layers":[]}]`, tag),
		} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		return "docker-archive:" + rig.tarOf(dir, "docker.tar", compressors["app.tar"])
	}
	own := rig.one("amd64", archive(app)).Target.Digest
	if got := rig.one("amd64", archive("registry.example/app@"+own)); got.Reference != "registry.example/app@"+own || got.Target.Digest != own {
		t.Errorf("%+v", got)
	}
	for _, tag := range []string{"registry.example/app@sha256:", "registry.example/app:1@sha256:"} {
		_, err := rig.read("amd64", archive(tag+strings.Repeat("a", 64)))
		if err == nil || !strings.Contains(err.Error(), "the image has the digest "+own+", which is not the one in its name") {
			t.Errorf("%s: %v", tag, err)
		}
	}
}

// Docker and containerd have images by digest too.
func TestNamesWithDigestOfRuntimes(t *testing.T) {
	rig := newRig(t)
	d := fakesites.Documents{}
	target := d.AddIndex(indexType, on(d, "amd64", ""))
	d.Layout(t, rig.path("layout"), target)
	file := rig.tarOf(rig.path("layout"), "app.tar", compressors["app.tar"])
	const repository = "registry.example/app"
	right, wrong := repository+"@"+target.Digest.String(), repository+"@sha256:"+strings.Repeat("a", 64)
	t.Setenv("DOCKER_HOST", rig.serveDocker(map[string]string{right: file, wrong: file}))
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "ctr"), fmt.Appendf(nil, "#!/bin/sh\nexec cat %q\n", file), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	for _, kind := range []string{"docker-daemon:", "containerd:"} {
		if got := rig.one("amd64", kind+right); got.Reference != right || got.Target.Digest != target.Digest.String() {
			t.Errorf("%s: %+v", kind, got)
		}
		if _, err := rig.read("amd64", kind+wrong); err == nil || !strings.Contains(err.Error(), "which is not the one in its name") {
			t.Errorf("%s: %v", kind, err)
		}
		if got := rig.one("amd64", kind+right+"="+app); got.Reference != app {
			t.Errorf("%s: %+v", kind, got)
		}
	}
}

// An image of schema 1 is named as such, also in a layout.
func TestSchema1InLayout(t *testing.T) {
	rig := newRig(t)
	d := fakesites.Documents{}
	d.Layout(t, rig.path("layout"), named(d.Add("application/vnd.docker.distribution.manifest.v1+json", []byte(`{"schemaVersion":1,"fsLayers":[]}`)), app))
	_, err := rig.read("amd64", "oci:"+rig.path("layout"))
	if err == nil || !strings.Contains(err.Error(), "it is an image of schema 1") || !strings.Contains(fault.Hint(err), "skopeo copy") {
		t.Errorf("%v (%s)", err, fault.Hint(err))
	}
}

// A pod may name an image by its repository and digest.
func TestAs(t *testing.T) {
	rig := newRig(t)
	d := fakesites.Documents{}
	manifest := on(d, "amd64", "")
	target := d.AddIndex(indexType, manifest)
	d.Layout(t, rig.path("layout"), named(target, app))
	img := rig.one("amd64", "oci:"+rig.path("layout"))
	for name, want := range map[string]string{
		"registry.example/app@" + target.Digest.String():         target.Digest.String(),
		"registry.example/app@" + manifest.Digest.String():       manifest.Digest.String(),
		"registry.example/other@" + target.Digest.String():       "",
		"registry.example/app@" + img.Config.Digest:              "",
		"registry.example/app@sha256:" + strings.Repeat("a", 64): "",
		app: "",
	} {
		as, ok := img.As(name)
		if ok != (want != "") || ok && (as.Target.Digest != want || as.Reference != name || as.Manifest != img.Manifest) {
			t.Errorf("%s: %v, %v", name, as, ok)
		}
	}
}
