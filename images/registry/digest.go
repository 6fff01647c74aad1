package registry

import (
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"airlift/bundle"
)

func descriptor(d v1.Descriptor) bundle.Descriptor {
	return bundle.Descriptor{MediaType: string(d.MediaType), Digest: d.Digest.String(), Size: d.Size}
}

func hexOf(digest string) string { return strings.TrimPrefix(digest, "sha256:") }

func isIndex(mediaType string) bool { return types.MediaType(mediaType).IsIndex() }

func isManifest(mediaType string) bool { return types.MediaType(mediaType).IsImage() }
