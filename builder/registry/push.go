package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"airlift/bundle"
	"airlift/internal/fault"
)

// A Repository is one to push to.
type Repository struct {
	client  *Client
	repo    name.Repository
	options []remote.Option
	http    *http.Client
}

// Repository logs in to push to the repository that is named "registry.example/team/app".
func (c *Client) Repository(ctx context.Context, repository string) (*Repository, error) {
	repo, err := name.NewRepository(repository, name.StrictValidation)
	if err != nil {
		return nil, fault.Wrap(err, fault.Usage, "write the registry with its port, and the path in lower-case letters: registry.example:5000/mirror")
	}
	tr, err := c.logIn(ctx, repo, transport.PushScope)
	if err != nil {
		return nil, fmt.Errorf("pushing to %s: %w", repository, c.explainPush(repo, err))
	}
	return &Repository{c, repo, []remote.Option{remote.WithTransport(tr)}, &http.Client{Transport: tr}}, nil
}

func (r *Repository) with(ctx context.Context) []remote.Option {
	return append(slices.Clone(r.options), remote.WithContext(ctx))
}

// HasBlob reports whether the repository has a blob.
func (r *Repository) HasBlob(ctx context.Context, digest string) (bool, error) {
	u := address(r.repo, "blobs", digest)
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, u, nil)
	if err != nil {
		return false, err
	}
	resp, err := r.http.Do(req)
	if err != nil {
		return false, r.failed("asking for "+digest, err)
	}
	resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
		return true, nil
	case http.StatusNotFound:
		return false, nil
	}
	return false, r.failed("asking for "+digest, &transport.Error{StatusCode: resp.StatusCode, Request: req})
}

// A Blob is one to push.
type Blob struct {
	Digest string
	Size   int64
	// Open opens the content from its beginning; it may be called again.
	Open func() (io.ReadCloser, error)
}

// PushBlob uploads a blob unless the repository has it. sent counts the bytes; it gets a
// negative number if they are sent again.
func (r *Repository) PushBlob(ctx context.Context, b Blob, sent func(int64)) error {
	hash, err := v1.NewHash(b.Digest)
	if err != nil {
		return err
	}
	return r.failed("pushing "+b.Digest, remote.WriteLayer(r.repo, &pushed{blob: b, hash: hash, sent: sent}, r.with(ctx)...))
}

type pushed struct {
	blob Blob
	hash v1.Hash
	sent func(int64)
	n    int64 // bytes of the last attempt
}

func (p *pushed) Digest() (v1.Hash, error)             { return p.hash, nil }
func (p *pushed) Size() (int64, error)                 { return p.blob.Size, nil }
func (p *pushed) MediaType() (types.MediaType, error)  { return types.OCILayer, nil }
func (p *pushed) DiffID() (v1.Hash, error)             { return v1.Hash{}, errors.New("not known") }
func (p *pushed) Uncompressed() (io.ReadCloser, error) { return nil, errors.New("not known") }

func (p *pushed) Compressed() (io.ReadCloser, error) {
	f, err := p.blob.Open()
	if err != nil {
		return nil, err
	}
	p.sent(-p.n)
	p.n = 0
	return &counting{f, p}, nil
}

type counting struct {
	io.ReadCloser
	p *pushed
}

func (c *counting) Read(b []byte) (int, error) {
	n, err := c.ReadCloser.Read(b)
	c.p.n += int64(n)
	c.p.sent(int64(n))
	return n, err
}

type document struct {
	body      []byte
	mediaType string
}

func (d document) RawManifest() ([]byte, error)        { return d.body, nil }
func (d document) MediaType() (types.MediaType, error) { return types.MediaType(d.mediaType), nil }

// PushDocument uploads an index or a manifest, under its digest, and under tag if it is not
// empty.
func (r *Repository) PushDocument(ctx context.Context, d bundle.Descriptor, body []byte, tag string) error {
	var ref name.Reference = r.repo.Digest(d.Digest)
	if tag != "" {
		ref = r.repo.Tag(tag)
	}
	return r.failed("pushing "+ref.Name(), remote.Put(ref, document{body, d.MediaType}, r.with(ctx)...))
}

// Has returns the digest of the index or manifest with this tag or digest. It is empty if
// there is none, or if the registry does not answer such requests.
func (r *Repository) Has(ctx context.Context, tagOrDigest string) string {
	var ref name.Reference = r.repo.Tag(tagOrDigest)
	if _, err := v1.NewHash(tagOrDigest); err == nil {
		ref = r.repo.Digest(tagOrDigest)
	}
	d, err := remote.Head(ref, r.with(ctx)...)
	if err != nil {
		return ""
	}
	return d.Digest.String()
}

// IncompleteIndex reports whether a registry refused an index because it has not all of its
// manifests.
func IncompleteIndex(err error) bool {
	var e *transport.Error
	if !errors.As(err, &e) || e.StatusCode < 400 || e.StatusCode >= 500 {
		return false
	}
	return slices.ContainsFunc(e.Errors, func(d transport.Diagnostic) bool {
		return d.Code == transport.ManifestBlobUnknownErrorCode || d.Code == transport.ManifestUnknownErrorCode ||
			d.Code == transport.ManifestInvalidErrorCode || d.Code == transport.BlobUnknownErrorCode
	})
}

func (r *Repository) failed(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s to %s: %w", doing, r.repo.Name(), r.client.explainPush(r.repo, err))
}
