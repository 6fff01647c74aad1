package phases

import (
	"io"
	"slices"
	"strings"
	"testing"

	"airlift/bundle"
	"airlift/images/store"
	"airlift/installer/config"
	"airlift/installer/node"
	"airlift/installer/payload"
	"airlift/installer/workflow"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/testhost"
)

// With imageRepository, the image of a component gets a second name. An image of the site with this name
// would replace it, or be replaced.
func TestConfiguredNameOfAnotherImage(t *testing.T) {
	apiserver := bundle.Image{Name: "kube-apiserver", Reference: "registry.k8s.io/kube-apiserver:v1.29.15", Config: bundle.Descriptor{Digest: "sha256:a"}}
	site := bundle.Image{Name: "registry.example/k8s/kube-apiserver:v1.29.15", Reference: "registry.example/k8s/kube-apiserver:v1.29.15"}
	hub := bundle.Image{Name: "docker.io/k8s/kube-apiserver:v1.29.15", Reference: "docker.io/k8s/kube-apiserver:v1.29.15"}
	for id, refused := range map[string]bool{"sha256:a": false, "sha256:b": true} {
		site.Config.Digest, hub.Config.Digest = id, id
		b := &payload.Bundle{Manifest: &bundle.Manifest{Images: []bundle.Image{apiserver, site, hub}}, Images: map[string]string{"kube-apiserver": apiserver.Reference, site.Name: site.Reference, hub.Name: hub.Reference}}
		for repository, other := range map[string]bool{"": false, "registry.example/other": false, "registry.example/k8s": true, "docker.io/k8s": true, "k8s": true} {
			c := &config.Config{}
			c.ImageRepository = repository
			_, err := PlanInit(b, c, false, nil)
			if want := refused && other; want != (err != nil) || want && (fault.ExitCode(err) != fault.Usage || !strings.Contains(err.Error(), "the bundle has another image of this name")) {
				t.Errorf("%s, %q: %v", id, repository, err)
			}
		}
	}
}

// The pause image does not get the name of another image of the bundle, however that name is written.
func TestSandboxNameOfAnotherImage(t *testing.T) {
	digest := "sha256:" + strings.Repeat("a", 64)
	pause := bundle.Image{Name: "pause", Reference: "registry.k8s.io/pause:3.9"}
	own := bundle.Image{Name: "registry.example/pause:1", Reference: "registry.example/pause:1", Target: bundle.Descriptor{Digest: digest}}
	hub := bundle.Image{Name: "docker.io/library/pause:latest", Reference: "docker.io/library/pause:latest"}
	proxy := bundle.Image{Name: "kube-proxy", Reference: "registry.k8s.io/kube-proxy:v1.29.15"}
	manifest := &bundle.Manifest{Images: []bundle.Image{pause, own, hub, proxy}}
	other := "registry.example/pause@sha256:" + strings.Repeat("b", 64)
	for configured, want := range map[string][]string{
		own.Reference: {}, pause.Reference: {}, "registry.example/other:1": {"registry.example/other:1"},
		"pause": {}, "library/pause": {}, "index.docker.io/library/pause:latest": {}, "pause:3": {"pause:3"},
		"registry.example/pause@" + digest: {}, "registry.example/pause:9@" + digest: {}, other: {other},
		"k8s/pause:3.9": {}, "docker.io/k8s/kube-proxy:v1.29.15": {}, "not a name": {"not a name"},
		"": slices.DeleteFunc(slices.Clone((&node.ExistingRuntime{}).SandboxImages()), func(s string) bool { return s == pause.Reference }),
	} {
		c := &config.Config{Images: map[string]string{"pause": "k8s/pause:3.9", "kube-proxy": "k8s/kube-proxy:v1.29.15"}} // imageRepository: k8s
		n := NewNode(&Plan{Config: c, Bundle: &payload.Bundle{Manifest: manifest}, Role: Worker}, node.NewMachine(testhost.Open(t, t.TempDir()), &workflow.Console{Out: io.Discard}))
		n.Observed.Runtime = &node.ExistingRuntime{Info: store.Info{SandboxImage: configured}}
		if got := NewContent(n).sandboxNames(); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", configured, got, want)
		}
	}
}
