package registry_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"airlift/builder/registry"
	"airlift/bundle/platform"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/fakesites"
)

// What is pulled is what containerd chooses in the same index.
func TestIndexesEqualContainerd(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	r := newRig(t)
	equal := 0
	for n := range 300 {
		d := fakesites.Documents{}
		target := d.RandomIndex(random)
		tag := fmt.Sprint("v", n)
		r.Answer = d.Serve(tag, target)
		for _, arch := range []string{"amd64", "arm64"} {
			want, wantErr := d.Chosen(target, arch)
			reference := "registry.k8s.io/team/app:" + tag
			img, err := r.client(arch).Resolve(t.Context(), registry.Wanted{Name: "app", Reference: reference})
			switch {
			case err == nil && wantErr == nil && img.Config.Digest == want.String() && img.Target.Digest == target.Digest.String():
				equal++
			case err == nil:
				t.Fatalf("%s, index %s: %+v, containerd: %s, %v", arch, d[target.Digest], img.Image, want, wantErr)
			case wantErr == nil && !errors.Is(err, platform.ErrSize) && !strings.Contains(err.Error(), "has no image for") && !strings.Contains(err.Error(), "has no os or no architecture"):
				t.Fatalf("%s, index %s: %v, containerd: %s", arch, d[target.Digest], err, want)
			}
		}
	}
	if equal < 80 {
		t.Errorf("only %d are equal", equal)
	}
}

// What is no image of a container has an error that names it.
func TestNotAnImage(t *testing.T) {
	r := newRig(t)
	for name, c := range map[string]struct {
		doc        func(d fakesites.Documents) ocispec.Descriptor
		want, hint string
	}{
		"schema 1": {func(d fakesites.Documents) ocispec.Descriptor {
			return d.Add("application/vnd.docker.distribution.manifest.v1+prettyjws", []byte(`{"schemaVersion":1,"name":"team/app","tag":"v1","architecture":"amd64","fsLayers":[],"history":[],"signatures":[]}`))
		}, "it is an image of schema 1", "docker://registry.k8s.io/team/app:schema-1"},
		"schema 1 in an index": {func(d fakesites.Documents) ocispec.Descriptor {
			m := d.Add(ocispec.MediaTypeImageManifest, []byte(`{"schemaVersion":1,"fsLayers":[]}`))
			m.Platform = &ocispec.Platform{OS: "linux", Architecture: "amd64"}
			return d.AddIndex(ocispec.MediaTypeImageIndex, m)
		}, "it is an image of schema 1", "docker://registry.k8s.io/team/app:schema-1"},
		"a chart": {func(d fakesites.Documents) ocispec.Descriptor {
			return withConfig(d, "application/vnd.cncf.helm.config.v1+json", `{"name":"app","version":"1.2.3","apiVersion":"v2"}`)
		}, "is a Helm chart, not a container image", "--images-from"},
		"an artifact": {func(d fakesites.Documents) ocispec.Descriptor {
			return withConfig(d, "application/vnd.example.policy.v1", `not JSON`)
		}, `is an artifact, not a container image: its config is of type "application/vnd.example.policy.v1"`, "name an image"},
		"an artifact with an empty config": {func(d fakesites.Documents) ocispec.Descriptor {
			return withConfig(d, ocispec.MediaTypeEmptyJSON, `{}`)
		}, "is an artifact, not a container image", "name an image"},
		"an image without a platform": {func(d fakesites.Documents) ocispec.Descriptor {
			return withConfig(d, ocispec.MediaTypeImageConfig, `{"rootfs":{"type":"layers","diff_ids":[]}}`)
		}, "has no os or no architecture", "docker build --platform"},
	} {
		d := fakesites.Documents{}
		tag := strings.ReplaceAll(name, " ", "-")
		r.Answer = d.Serve(tag, c.doc(d))
		_, err := r.client("amd64").Resolve(t.Context(), registry.Wanted{Name: "app", Reference: "registry.k8s.io/team/app:" + tag})
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(fault.Hint(err), c.hint) {
			t.Errorf("%s: err = %v\nhint: %s", name, err, fault.Hint(err))
		}
	}
}

func withConfig(d fakesites.Documents, configType, config string) ocispec.Descriptor {
	return d.Add(ocispec.MediaTypeImageManifest, ocispec.Manifest{MediaType: ocispec.MediaTypeImageManifest, Config: d.Add(configType, []byte(config)), Layers: []ocispec.Descriptor{}})
}
