package config_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"airlift/installer/config"
	_ "airlift/scripts/fixtures/seed"
)

// What a cluster stores is read as it was, whatever it is.
func TestRegistryRoundTrip(t *testing.T) {
	text, host := rapid.StringMatching(`[a-z0-9.:/-]{1,20}`), rapid.StringMatching(`[a-z0-9][a-z0-9.:-]{0,20}`)
	file := rapid.Custom(func(t *rapid.T) config.KeptBundle {
		return config.KeptBundle{
			ID: text.Draw(t, "id"), Size: rapid.Int64Min(1).Draw(t, "size"), KubernetesVersion: text.Draw(t, "version"), Platform: text.Draw(t, "platform"),
			ManifestSHA256: text.Draw(t, "manifest"), Base: text.Draw(t, "base"), Only: some(t, text), Registries: some(t, host),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		r := config.EmbeddedRegistry{
			Used: rapid.Bool().Draw(t, "used"), Bundles: rapid.SliceOfN(file, 1, 3).Draw(t, "files"), Images: some(t, text), Generation: rapid.IntMin(0).Draw(t, "generation"),
		}
		data, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if is, err := config.DecodeRegistry(data); err != nil || !reflect.DeepEqual(is, r) {
			t.Fatalf("%+v, %v; want %+v", is, err, r)
		}
	})
	if _, err := config.DecodeRegistry([]byte("apiVersion: airlift/v9\nkind: Registry\n")); err == nil || !strings.Contains(err.Error(), "another version of Airlift") {
		t.Error(err)
	}
}

// some returns nil or a list.
func some(t *rapid.T, of *rapid.Generator[string]) []string {
	list := rapid.SliceOfN(of, 0, 3).Draw(t, "list")
	if len(list) == 0 {
		return nil
	}
	return list
}

// TestGenerations: nodes follow exactly the changes that concern them.
func TestGenerations(t *testing.T) {
	file := func(id string, registries ...string) config.KeptBundle {
		return config.KeptBundle{ID: id, Registries: registries}
	}
	r := config.EmbeddedRegistry{Used: true}
	for _, step := range []struct {
		what    string
		change  func()
		follows bool
	}{
		{"the first file", func() { r.Keep(file("a", "quay.io")) }, true},
		{"the same file", func() { r.Keep(file("a", "quay.io")) }, false},
		{"a file with the same registries", func() { r.Keep(file("b", "quay.io")) }, false},
		{"a file with another registry", func() { r.Keep(file("c", "docker.io", "quay.io")) }, true},
		{"images", func() { r.Bring([]string{"quay.io/a:1"}) }, true},
		{"the same images", func() { r.Bring([]string{"quay.io/a:1"}) }, false},
		{"no images", func() { r.Bring(nil) }, false},
		{"an image that every node need not have any more", func() { r.Forget([]string{"quay.io/a:1", "quay.io/b:1"}) }, false},
		{"a file less, and its registry stays", func() { r.Drop("b") }, false},
		{"a file less, and its registry", func() { r.Drop("c") }, true},
		{"no registry", func() { r.Disable() }, true},
		{"no registry again", func() { r.Disable() }, false},
	} {
		before := r.Generation
		if step.change(); r.Generation > before != step.follows {
			t.Errorf("%s: generation %d, then %d", step.what, before, r.Generation)
		}
	}
	if r.Used || len(r.Bundles)+len(r.Images) > 0 {
		t.Errorf("disabled: %+v", r)
	}
	r.Keep(file("a", "quay.io"))
	r.Keep(file("b", "docker.io"))
	if !slices.Equal(r.Registries(), []string{"docker.io", "quay.io"}) || r.Bundles[0].ID != "b" {
		t.Errorf("%+v", r)
	}
}

// TestSuperseded: the file of a former version stays while a node has the version, or another file has layers only there.
func TestSuperseded(t *testing.T) {
	r := config.EmbeddedRegistry{Used: true, Bundles: []config.KeptBundle{
		{ID: "new", KubernetesVersion: "v1.37.2", ManifestSHA256: "1"}, {ID: "more", KubernetesVersion: "v1.37.1", ManifestSHA256: "2", Only: []string{"images"}, Base: "3"},
		{ID: "base", KubernetesVersion: "v1.37.1", ManifestSHA256: "3"}, {ID: "old", KubernetesVersion: "v1.36.0", ManifestSHA256: "4"},
	}}
	if ids := r.Superseded([]string{"v1.37.2"}); !slices.Equal(ids, []string{"old"}) {
		t.Error(ids)
	}
	r.Drop("more")
	if ids := r.Superseded([]string{"v1.37.2"}); !slices.Equal(ids, []string{"base", "old"}) {
		t.Errorf("without the file that needs the base: %v", ids)
	}
}
