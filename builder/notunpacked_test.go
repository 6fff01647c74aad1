package builder_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"airlift/builder"
	"airlift/bundle"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/fakesites"
)

// A layer that containerd cannot unpack ends the build with its image, digest and type, wherever the image comes from:
// the import would end at the site.
func TestLayersThatAreNotUnpacked(t *testing.T) {
	t.Parallel()
	const reference = "docker.io/team/filter:1"
	wasm := append([]byte("\x00asm\x01\x00\x00\x00"), make([]byte, 3000)...)
	good := fakesites.LayerTar(t, "good")
	u := fakesites.New(t, version)
	base := options(t, u)
	base.Images = []string{"docker.io/team/base:1"}
	u.Push("docker.io/team/base:1", fakesites.ImageOf(t, "amd64", fakesites.RawLayer(good)))
	baseResult := run(t, base)
	for kind, c := range map[string]struct {
		layer v1.Layer
		want  string
		hint  string
	}{
		"wasm as a tar":  {fakesites.RawLayer(wasm), "it is not a tar archive", "docker build"},
		"wasm":           {static.NewLayer(wasm, "application/wasm"), `type "application/wasm"`, "docker build"},
		"encrypted":      {static.NewLayer(good, "application/vnd.oci.image.layer.v1.tar+encrypted"), "+encrypted", "skopeo copy --decryption-key KEY docker://" + reference},
		"nydus":          {static.NewLayer(good, "application/vnd.oci.image.layer.nydus.blob.v1"), "nydus", "before its conversion"},
		"without a type": {static.NewLayer(good, ""), `type ""`, "docker build"},
		"unknown type":   {static.NewLayer(good, "application/vnd.example.layer"), `type "application/vnd.example.layer"`, "docker build"},
	} {
		img := fakesites.ImageOf(t, "amd64", c.layer)
		digest, err := c.layer.Digest()
		if err != nil {
			t.Fatal(err)
		}
		u.Push(reference, img)
		dir := t.TempDir()
		p, err := layout.Write(filepath.Join(dir, "layout"), empty.Index)
		if err == nil {
			err = p.AppendImage(img)
		}
		if err != nil {
			t.Fatal(err)
		}
		sources := map[string]func(o *builder.Options){
			"registry": func(o *builder.Options) { o.Images = []string{reference} },
			"layout":   func(o *builder.Options) { o.Images = []string{"oci:" + filepath.Join(dir, "layout") + "=" + reference} },
			"additional": func(o *builder.Options) {
				o.Images, o.Only = []string{reference}, []string{bundle.OnlyImages}
			},
			"with a base": func(o *builder.Options) {
				o.Images, o.Only, o.Base = []string{reference}, []string{bundle.OnlyImages}, baseResult.Path
			},
			"full after the cache": func(o *builder.Options) { o.Images, o.CacheDir = []string{reference}, base.CacheDir },
		}
		if kind == "wasm as a tar" { // docker's archives have no types
			tag, err := name.NewTag(reference)
			if err == nil {
				err = tarball.WriteToFile(filepath.Join(dir, "app.tar"), tag, img)
			}
			if err != nil {
				t.Fatal(err)
			}
			sources["docker archive"] = func(o *builder.Options) { o.Images = []string{"docker-archive:" + filepath.Join(dir, "app.tar")} }
		}
		for from, change := range sources {
			o := options(t, u)
			o.CacheDir = base.CacheDir // binaries and images of the catalog
			change(&o)
			_, err := runOne(context.Background(), o)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "image "+reference+": layer "+digest.String()) || !strings.Contains(fault.Hint(err), c.hint) {
				t.Errorf("%s from %s: %v\n%s", kind, from, err, fault.Hint(err))
			}
			if _, err := os.Stat(o.Output); err == nil {
				t.Errorf("%s from %s: a bundle was written", kind, from)
			}
		}
	}
	for _, kind := range []types.MediaType{types.OCIUncompressedLayer, types.DockerUncompressedLayer, "application/vnd.oci.image.layer.nondistributable.v1.tar"} {
		u.Push(reference, fakesites.ImageOf(t, "amd64", static.NewLayer(good, kind)))
		o := options(t, u)
		o.Images, o.Only = []string{reference}, []string{bundle.OnlyImages}
		if _, err := runOne(context.Background(), o); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
}
