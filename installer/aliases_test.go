package installer

import (
	"io"
	"slices"
	"strings"
	"testing"

	"airlift/bundle"
	"airlift/fault"
	"airlift/images/store"
	"airlift/installer/config"
)

// With imageRepository, the image of a component gets a second name. An image of the site with this name
// would replace it, or be replaced.
func TestConfiguredNameOfAnotherImage(t *testing.T) {
	apiserver := bundle.Image{Name: "kube-apiserver", Reference: "registry.k8s.io/kube-apiserver:v1.29.15", Config: bundle.Descriptor{Digest: "sha256:a"}}
	site := bundle.Image{Name: "registry.example/k8s/kube-apiserver:v1.29.15", Reference: "registry.example/k8s/kube-apiserver:v1.29.15"}
	for id, refused := range map[string]bool{"sha256:a": false, "sha256:b": true} {
		site.Config.Digest = id
		b := &Bundle{manifest: &bundle.Manifest{Images: []bundle.Image{apiserver, site}}, images: map[string]string{"kube-apiserver": apiserver.Reference, site.Name: site.Reference}}
		for repository, other := range map[string]bool{"": false, "registry.example/other": false, "registry.example/k8s": true} {
			c := &config.Config{}
			c.ImageRepository = repository
			_, err := PlanInit(b, c, false, nil)
			if want := refused && other; want != (err != nil) || want && (fault.ExitCode(err) != fault.Usage || !strings.Contains(err.Error(), "the bundle has another image of this name")) {
				t.Errorf("%s, %q: %v", id, repository, err)
			}
		}
	}
}

// The pause image does not get the name of another image of the bundle.
func TestSandboxNameOfAnotherImage(t *testing.T) {
	pause := bundle.Image{Name: "pause", Reference: "registry.k8s.io/pause:3.9"}
	own := bundle.Image{Name: "registry.example/pause:1", Reference: "registry.example/pause:1"}
	b := &Bundle{manifest: &bundle.Manifest{Images: []bundle.Image{pause, own}}}
	for configured, want := range map[string][]string{
		"registry.example/pause:1": {}, pause.Reference: {}, "registry.example/other:1": {"registry.example/other:1"},
		"": slices.DeleteFunc(slices.Clone(defaultSandboxImages), func(s string) bool { return s == pause.Reference }),
	} {
		n := newNode(&Plan{config: &config.Config{}, bundle: b, role: worker}, newMachine(hostOn(t, t.TempDir()), &Console{Out: io.Discard}))
		n.runtime = &existingRuntime{info: store.Info{SandboxImage: configured}}
		if got := (&content{node: n}).sandboxNames(); !slices.Equal(got, want) {
			t.Errorf("%q: %q", configured, got)
		}
	}
}
