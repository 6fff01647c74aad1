package registry

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strconv"
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

// manifestTypes are the accepted media types.
var manifestTypes = strings.Join([]string{
	string(types.OCIImageIndex), string(types.DockerManifestList),
	string(types.OCIManifestSchema1), string(types.DockerManifestSchema2),
}, ", ")

// describe returns the descriptor of an index or a manifest. It uses only the content,
// because no digest covers the registry's headers.
func describe(body []byte) (bundle.Descriptor, error) {
	d := bundle.Descriptor{Digest: fmt.Sprintf("sha256:%x", sha256.Sum256(body)), Size: int64(len(body))}
	var doc struct {
		MediaType string          `json:"mediaType"`
		Manifests json.RawMessage `json:"manifests"`
		Config    json.RawMessage `json:"config"`
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		return d, fmt.Errorf("reading manifest %s: %w", d.Digest, err)
	}
	switch {
	case isIndex(doc.MediaType), isManifest(doc.MediaType):
		d.MediaType = doc.MediaType
	// OCI documents need not have a media type.
	case doc.MediaType == "" && doc.Manifests != nil && doc.Config == nil:
		d.MediaType = string(types.OCIImageIndex)
	case doc.MediaType == "" && doc.Config != nil && doc.Manifests == nil:
		d.MediaType = string(types.OCIManifestSchema1)
	default:
		return d, fmt.Errorf("%s is of type %q, not an image or an image index", d.Digest, doc.MediaType)
	}
	return d, nil
}

// printable makes a registry's text safe for a terminal.
func printable(s string) string {
	q := strconv.QuoteToASCII(s)
	if q == `"`+s+`"` {
		return s
	}
	return q
}
