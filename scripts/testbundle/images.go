package testbundle

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"slices"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"airlift/bundle"
	"airlift/installer/payload"
)

// Images are the manifest and the contents of a bundle of images.
type Images struct {
	Manifest bundle.Manifest
	Content  map[string][]byte
}

// NewImages returns a bundle without images. only limits its contents, as in its manifest.
func NewImages(only ...string) *Images {
	return &Images{
		Manifest: bundle.Manifest{FormatVersion: bundle.FormatVersion, Platform: "linux/amd64", KubernetesVersion: "v1.37.1", CNI: "none", Only: only},
		Content:  map[string][]byte{},
	}
}

// Layer returns a layer with one file.
func Layer(t *testing.T, name, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func (b *Images) blob(mediaType string, data []byte) bundle.Descriptor {
	d := "sha256:" + Sum(data)
	if name := bundle.BlobName(d); b.Content[name] == nil {
		b.Content[name] = data
		b.Manifest.Entries = append(b.Manifest.Entries, bundle.Entry{Name: name, Size: int64(len(data)), SHA256: Sum(data)})
	}
	return bundle.Descriptor{MediaType: mediaType, Digest: d, Size: int64(len(data))}
}

// Add adds an image. Its layers that are in base, if that is not nil, are left out.
func (b *Images) Add(t *testing.T, name, ref string, base *payload.Bundle, layers ...[]byte) {
	t.Helper()
	encode := func(v any) []byte {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	img := bundle.Image{Name: name, Reference: ref}
	cfg := ocispec.Image{Platform: ocispec.Platform{Architecture: "amd64", OS: "linux"}, RootFS: ocispec.RootFS{Type: "layers"}}
	manifest := ocispec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest}
	for _, l := range layers {
		id := "sha256:" + Sum(l)
		img.Layers = append(img.Layers, bundle.Layer{DiffID: id, Size: int64(len(l))})
		cfg.RootFS.DiffIDs = append(cfg.RootFS.DiffIDs, digest.Digest(id))
		manifest.Layers = append(manifest.Layers, ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayer, Digest: digest.Digest(id), Size: int64(len(l))})
	}
	cfg.Config.Cmd = []string{ref}
	img.Config = b.blob(ocispec.MediaTypeImageConfig, encode(cfg))
	manifest.Config = ocispec.Descriptor{MediaType: img.Config.MediaType, Digest: digest.Digest(img.Config.Digest), Size: img.Config.Size}
	img.Manifest = b.blob(ocispec.MediaTypeImageManifest, encode(manifest))
	img.Target = img.Manifest
	for i, l := range layers {
		if base != nil {
			if _, has := base.Manifest.Entry(bundle.BlobName(img.Layers[i].DiffID)); has {
				b.Manifest.Base.Layers = append(b.Manifest.Base.Layers, img.Layers[i].DiffID)
				continue
			}
		}
		b.blob("", l)
	}
	b.Manifest.Images = append(b.Manifest.Images, img)
}

// Write writes the bundle with a name and opens it.
func (b *Images) Write(t *testing.T, name string) *payload.Bundle {
	t.Helper()
	if b.Manifest.Base != nil {
		slices.Sort(b.Manifest.Base.Layers)
		b.Manifest.Base.Layers = slices.Compact(b.Manifest.Base.Layers)
	}
	return Write(t, name, []byte("installer"), &b.Manifest, b.Content)
}
