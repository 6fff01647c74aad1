package registry

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"airlift/builder/fetch"
)

// A Signature is a document that a registry has about an image, as cosign stores it.
type Signature struct {
	// Document is the signed text if Annotations has the signature. Otherwise it contains the
	// signature.
	Document    []byte
	Annotations map[string]string
}

const (
	// maxSignatures limits the number of signatures of an image.
	maxSignatures = 16
	// maxSignature limits the size of a signature. Kubernetes' signatures have less than 1 KiB,
	// sigstore bundles about 10 KiB.
	maxSignature = 1 << 20
)

// Signatures returns the signatures of an image or index in its repository: the layers of the
// image with the tag sha256-HEX.sig, and of the referrers whose artifact type begins with
// referrerType. The list is empty if the registry has none.
func (c *Client) Signatures(ctx context.Context, reference, digest, referrerType string) ([]Signature, error) {
	ref, err := name.ParseReference(reference)
	if err != nil {
		return nil, err
	}
	hash, err := v1.NewHash(digest)
	if err != nil {
		return nil, err
	}
	repo := ref.Context()
	list, err := c.layersOf(ctx, repo.Tag("sha256-"+hash.Hex+".sig"))
	if err != nil {
		return nil, fmt.Errorf("reading the signatures of %s: %w", reference, err)
	}
	referrers, err := c.referrers(ctx, repo, hash)
	if err != nil {
		return nil, fmt.Errorf("reading the referrers of %s: %w", reference, err)
	}
	for _, d := range referrers {
		if !strings.HasPrefix(d.ArtifactType, referrerType) || len(list) >= maxSignatures {
			continue
		}
		more, err := c.layersOf(ctx, repo.Digest(d.Digest.String()))
		if err != nil {
			return nil, fmt.Errorf("reading the signatures of %s: %w", reference, err)
		}
		for _, s := range more {
			list = append(list, Signature{Document: s.Document})
		}
	}
	return list, nil
}

// referrers lists what refers to the image. A registry without the referrers API has them in
// an index with the tag sha256-HEX.
func (c *Client) referrers(ctx context.Context, repo name.Repository, hash v1.Hash) ([]v1.Descriptor, error) {
	s, err := c.open(ctx, repo)
	if err != nil {
		return nil, c.explain(repo.Digest(hash.String()), err)
	}
	q := fetch.Question{URL: address(repo, "referrers", hash.String()), Accept: "application/vnd.oci.image.index.v1+json", HTTP: s.http}
	body, _, err := c.fetch.Ask(ctx, q)
	var status *fetch.StatusError
	if fetch.NotThere(err) || errors.As(err, &status) && status.Code < 500 {
		body, _, err = c.ask(ctx, repo.Tag("sha256-"+hash.Hex))
	}
	if fetch.NotThere(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	index, err := v1.ParseIndexManifest(bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	return index.Manifests, nil
}

// layersOf returns the layers of an image with signatures, or nothing if it does not exist.
func (c *Client) layersOf(ctx context.Context, ref name.Reference) (list []Signature, err error) {
	body, _, err := c.ask(ctx, ref)
	if fetch.NotThere(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if d, ok := ref.(name.Digest); ok && d.DigestStr() != digestOf(body) {
		return nil, fmt.Errorf("%s has the digest %s", ref, digestOf(body))
	}
	m, err := v1.ParseManifest(bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	for _, layer := range m.Layers[:min(len(m.Layers), maxSignatures)] {
		if layer.Size < 1 || layer.Size > maxSignature {
			return nil, fmt.Errorf("%s has %d bytes, not between 1 and %d", layer.Digest, layer.Size, maxSignature)
		}
		content, err := c.blob(ctx, ref.Context(), layer.Digest.String(), layer.Size)
		if err != nil {
			return nil, err
		}
		list = append(list, Signature{content, layer.Annotations})
	}
	return list, nil
}

func (c *Client) blob(ctx context.Context, repo name.Repository, digest string, limit int64) ([]byte, error) {
	s, err := c.open(ctx, repo)
	if err != nil {
		return nil, err
	}
	body, _, err := c.fetch.Ask(ctx, fetch.Question{URL: address(repo, "blobs", digest), Max: limit, HTTP: s.http})
	if err != nil {
		return nil, err
	}
	if digestOf(body) != digest {
		return nil, fmt.Errorf("%s has the digest %s", digest, digestOf(body))
	}
	return body, nil
}

func digestOf(b []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(b)) }
