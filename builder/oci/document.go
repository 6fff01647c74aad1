package oci

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"airlift/bundle"
	"airlift/bundle/platform"
)

// Descriptor returns d in the form of a bundle's manifest.
func Descriptor(d v1.Descriptor) bundle.Descriptor {
	return bundle.Descriptor{MediaType: string(d.MediaType), Digest: d.Digest.String(), Size: d.Size}
}

func descriptor(d ocispec.Descriptor) bundle.Descriptor {
	return bundle.Descriptor{MediaType: d.MediaType, Digest: d.Digest.String(), Size: d.Size}
}

// Hex returns a sha256 digest without its prefix.
func Hex(digest string) string { return strings.TrimPrefix(digest, "sha256:") }

// Describe returns the descriptor of an index or a manifest. It uses only the content,
// because no digest covers a registry's headers.
func Describe(body []byte) (bundle.Descriptor, error) {
	d := bundle.Descriptor{Digest: fmt.Sprintf("sha256:%x", sha256.Sum256(body)), Size: int64(len(body))}
	var doc struct {
		MediaType                   string
		Manifests, Config, FSLayers json.RawMessage
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		what := "not an image or an image index"
		if !json.Valid(body) {
			what = "not JSON, or cut off"
		}
		return d, fmt.Errorf("reading manifest %s: its %d bytes are %s", d.Digest, len(body), what)
	}
	switch {
	case platform.IsIndex(doc.MediaType), platform.IsManifest(doc.MediaType):
		d.MediaType = doc.MediaType
	// OCI documents need not have a media type.
	case doc.MediaType == "" && doc.Manifests != nil && doc.Config == nil:
		d.MediaType = ocispec.MediaTypeImageIndex
	case doc.MediaType == "" && doc.Config != nil && doc.Manifests == nil:
		d.MediaType = ocispec.MediaTypeImageManifest
	case doc.FSLayers != nil:
		return d, fmt.Errorf("reading %s: %w", d.Digest, platform.ErrSchema1)
	default:
		return d, fmt.Errorf("%s is of type %q, not an image or an image index", d.Digest, doc.MediaType)
	}
	return d, nil
}
