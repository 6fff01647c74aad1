package oci

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"airlift/bundle"
	"airlift/bundle/fetch"
)

// Descriptor returns d in the form of a bundle's manifest.
func Descriptor(d v1.Descriptor) bundle.Descriptor {
	return bundle.Descriptor{MediaType: string(d.MediaType), Digest: d.Digest.String(), Size: d.Size}
}

// Hex returns a sha256 digest without its prefix.
func Hex(digest string) string { return strings.TrimPrefix(digest, "sha256:") }

// IsIndex reports whether mediaType is that of an index.
func IsIndex(mediaType string) bool { return types.MediaType(mediaType).IsIndex() }

// IsManifest reports whether mediaType is that of an image's manifest.
func IsManifest(mediaType string) bool { return types.MediaType(mediaType).IsImage() }

// ManifestTypes are the accepted media types of indexes and manifests.
var ManifestTypes = []string{
	string(types.OCIImageIndex), string(types.DockerManifestList),
	string(types.OCIManifestSchema1), string(types.DockerManifestSchema2),
}

// Describe returns the descriptor of an index or a manifest. It uses only the content,
// because no digest covers a registry's headers.
func Describe(body []byte) (bundle.Descriptor, error) {
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
	case IsIndex(doc.MediaType), IsManifest(doc.MediaType):
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

// Choose returns the manifest for linux on arch in an index. If there is none, the error
// is a *fetch.MissingError with the platforms that there are.
func Choose(reference string, index []byte, arch string) (bundle.Descriptor, error) {
	var i v1.IndexManifest
	if err := json.Unmarshal(index, &i); err != nil {
		return bundle.Descriptor{}, fmt.Errorf("reading index: %w", err)
	}
	var has []string
	for _, m := range i.Manifests {
		// Build attestations are listed as platform unknown/unknown.
		if m.Platform == nil || m.Platform.OS == "unknown" {
			continue
		}
		if m.Platform.OS == "linux" && m.Platform.Architecture == arch && IsManifest(string(m.MediaType)) {
			return Descriptor(m), nil
		}
		if p := printable(m.Platform.OS + "/" + m.Platform.Architecture); !slices.Contains(has, p) {
			has = append(has, p)
		}
	}
	slices.Sort(has)
	return bundle.Descriptor{}, otherPlatform(reference, arch, has)
}

func otherPlatform(reference, arch string, has []string) error {
	return &fetch.MissingError{URL: reference, Why: fmt.Sprintf("has no image for linux/%s, only for %s", arch, strings.Join(has, ", "))}
}

// printable makes text of a document safe for a terminal.
func printable(s string) string {
	q := strconv.QuoteToASCII(s)
	if q == `"`+s+`"` {
		return s
	}
	return q
}
