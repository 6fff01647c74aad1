package fakesites

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"testing"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Documents are the indexes, manifests and configs of images, by digest. It is a provider of
// containerd.
type Documents map[digest.Digest][]byte

// Add adds a document and returns its descriptor.
func (d Documents) Add(mediaType string, doc any) ocispec.Descriptor {
	body, ok := doc.([]byte)
	if !ok {
		var err error
		if body, err = json.Marshal(doc); err != nil {
			panic(err)
		}
	}
	desc := ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(body), Size: int64(len(body))}
	d[desc.Digest] = body
	return desc
}

// AddManifest adds an image without layers. name makes it different from others.
func (d Documents) AddManifest(mediaType, name string, p ocispec.Platform) ocispec.Descriptor {
	config := d.Add(ocispec.MediaTypeImageConfig, ocispec.Image{Author: name, Platform: p, RootFS: ocispec.RootFS{Type: "layers", DiffIDs: []digest.Digest{}}})
	return d.Add(mediaType, ocispec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: mediaType, Config: config, Layers: []ocispec.Descriptor{}})
}

// AddIndex adds an index.
func (d Documents) AddIndex(mediaType string, list ...ocispec.Descriptor) ocispec.Descriptor {
	return d.Add(mediaType, ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: mediaType, Manifests: list})
}

type blob struct{ *bytes.Reader }

func (blob) Close() error { return nil }

// ReaderAt makes Documents a content.Provider.
func (d Documents) ReaderAt(_ context.Context, desc ocispec.Descriptor) (content.ReaderAt, error) {
	body, ok := d[desc.Digest]
	if !ok {
		return nil, fmt.Errorf("%s: %w", desc.Digest, errdefs.ErrNotFound)
	}
	return blob{bytes.NewReader(body)}, nil
}

// Chosen returns the digest of the config that containerd chooses on a node of an architecture, or
// its error.
func (d Documents) Chosen(target ocispec.Descriptor, arch string) (digest.Digest, error) {
	m, err := images.Manifest(context.Background(), d, target, platforms.Only(ocispec.Platform{OS: "linux", Architecture: arch}))
	return m.Config.Digest, err
}

// Layout writes an OCI image layout with these documents.
func (d Documents) Layout(t testing.TB, dir string, list ...ocispec.Descriptor) {
	t.Helper()
	index, err := json.Marshal(ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex, Manifests: list})
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{"oci-layout": []byte(`{"imageLayoutVersion":"1.0.0"}`), "index.json": index}
	for dgst, body := range d {
		files["blobs/sha256/"+dgst.Encoded()] = body
	}
	for name, body := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, body, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// Serve answers requests to registries for these documents, and for one tag. It is for
// Upstream.Answer.
func (d Documents) Serve(tag string, target ocispec.Descriptor) func(http.ResponseWriter, *http.Request, string) bool {
	return func(w http.ResponseWriter, _ *http.Request, url string) bool {
		id := path.Base(url)
		if id == tag {
			id = target.Digest.String()
		}
		body, ok := d[digest.Digest(id)]
		if ok {
			_, _ = w.Write(body)
		}
		return ok
	}
}

// RandomIndex adds an index as tools write them, or worse: nested, with variants, without
// platforms, with documents of the wrong type or none.
func (d Documents) RandomIndex(r *rand.Rand) ocispec.Descriptor {
	return d.randomIndex(r, 3)
}

func (d Documents) randomIndex(r *rand.Rand, depth int) ocispec.Descriptor {
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	platform := func() ocispec.Platform {
		p := ocispec.Platform{OS: "linux", Architecture: pick("amd64", "amd64", "arm64")}
		if r.IntN(2) == 0 {
			return p
		}
		p = ocispec.Platform{
			OS:           pick("linux", "linux", "linux", "linux", "Linux", "", "windows", "unknown"),
			Architecture: pick("amd64", "amd64", "arm64", "arm64", "arm", "386", "x86_64", "aarch64", "AMD64", "", "s390x", "unknown"),
			Variant:      pick("", "", "", "v1", "v2", "v3", "v7", "v8", "V8", "8", "v8.0", "v8.2", "v9", "v5", "x"),
		}
		if r.IntN(6) == 0 {
			p.OSVersion = pick("10.0.17763.1", "6.1")
		}
		if r.IntN(8) == 0 {
			p.OSFeatures = []string{pick("", "win32k", "b"), pick("a", "b")}
		}
		return p
	}
	var list []ocispec.Descriptor
	for range r.IntN(6) {
		var child ocispec.Descriptor
		own := platform()
		switch n := r.IntN(20); {
		case n < 5 && depth > 0:
			child = d.randomIndex(r, depth-1)
		case n == 5 && len(list) > 0:
			child = list[r.IntN(len(list))]
		case n == 6:
			child = d.Add(pick(ocispec.MediaTypeImageManifest, ocispec.MediaTypeImageIndex), map[string]any{"schemaVersion": 1, "fsLayers": []int{}, "n": r.Uint64()})
		default:
			child = d.AddManifest(pick(ocispec.MediaTypeImageManifest, "application/vnd.docker.distribution.manifest.v2+json"), fmt.Sprint(r.Uint64()), own)
		}
		switch r.IntN(25) {
		case 0:
			child.MediaType = pick("", "text/plain", ocispec.MediaTypeImageManifest, ocispec.MediaTypeImageIndex)
		case 1:
			child.Digest = digest.FromString(fmt.Sprint(r.Uint64())) // missing
		}
		if r.IntN(3) > 0 {
			child.Platform = &own
		}
		list = append(list, child)
	}
	mediaType := pick(ocispec.MediaTypeImageIndex, "application/vnd.docker.distribution.manifest.list.v2+json")
	return d.AddIndex(mediaType, list...)
}
