package registry_test

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	reg "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"airlift/builder/fetch"
	"airlift/builder/registry"
	"airlift/scripts/fixtures/fakesites"
)

const bundleType = "application/vnd.dev.sigstore.bundle"

// artifact has one layer, and refers to an image.
func artifact(t *testing.T, of v1.Descriptor, kind, content string) v1.Image {
	t.Helper()
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.MediaType(kind))
	img, err := mutate.AppendLayers(img, static.NewLayer([]byte(content), types.MediaType(kind)))
	if err != nil {
		t.Fatal(err)
	}
	return mutate.Subject(img, of).(v1.Image)
}

// Signatures are found with both of cosign's forms, in registries with and without the API for
// referrers.
func TestSignatures(t *testing.T) {
	for what, api := range map[string]bool{"API": true, "tag": false} {
		t.Run(what, func(t *testing.T) {
			server := httptest.NewServer(reg.New(reg.WithReferrersSupport(api), reg.Logger(log.New(io.Discard, "", 0))))
			defer server.Close()
			push := func(tag string, img v1.Image) {
				t.Helper()
				to, err := name.ParseReference(strings.TrimPrefix(server.URL, "http://") + "/team/app:" + tag)
				if err == nil {
					err = remote.Write(to, img)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			app := fakesites.Image(t, "amd64", "x")
			push("v1", app)
			r := newRig(t)
			m, err := fetch.ParseMirror("registry.k8s.io=" + server.URL)
			if err != nil {
				t.Fatal(err)
			}
			mirrors, err := fetch.NewMirrors(http.DefaultTransport, []fetch.Mirror{m})
			if err != nil {
				t.Fatal(err)
			}
			c := registry.New(fetch.New(r.cache, mirrors), mirrors, "amd64")
			img, err := r.pull(c, ref)
			if err != nil {
				t.Fatal(err)
			}
			if list, err := c.Signatures(t.Context(), ref, img.Target.Digest, bundleType); err != nil || len(list) != 0 {
				t.Errorf("without signatures: %v, %v", list, err)
			}

			hash, _ := v1.NewHash(img.Target.Digest)
			of := v1.Descriptor{MediaType: types.MediaType(img.Target.MediaType), Digest: hash, Size: img.Target.Size}
			push("a", artifact(t, of, bundleType+".v0.3+json", "a bundle"))
			push("b", artifact(t, of, "application/spdx+json", "a list of software"))
			old, err := mutate.Append(empty.Image, mutate.Addendum{Layer: static.NewLayer([]byte("a statement"), "text/plain"), Annotations: map[string]string{"key": "value"}})
			if err != nil {
				t.Fatal(err)
			}
			push("sha256-"+hash.Hex+".sig", old)
			list, err := c.Signatures(t.Context(), ref, img.Target.Digest, bundleType)
			var got []string
			for _, s := range list {
				got = append(got, string(s.Document)+" "+s.Annotations["key"])
			}
			if want := []string{"a statement value", "a bundle "}; err != nil || !slices.Equal(got, want) {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}
