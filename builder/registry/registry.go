// Package registry downloads images from registries to the cache of package fetch, in the
// form of a bundle: indexes, manifests and configs with upstream's exact bytes, layers
// uncompressed.
package registry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"airlift/builder/fetch"
	"airlift/builder/oci"
	"airlift/bundle"
	"airlift/bundle/platform"
	"airlift/internal/fault"
)

// A Client pulls images for one platform.
type Client struct {
	// AuthFile has the credentials, in the format of docker's config.json. If it is
	// empty, they are in the files of docker and podman.
	AuthFile string
	// Have has the sizes, by diffID, of layers that need no download.
	Have map[string]int64
	// HaveCompressed describes the compressed blobs of layers in Have, by digest.
	HaveCompressed map[string]*bundle.Compressed
	// Keep stores the compressed blobs that no encoder gives.
	Keep bool

	fetch   *fetch.Client
	mirrors *fetch.Mirrors
	arch    string

	mu       sync.Mutex
	sessions map[string]*session // by repository
}

// New returns a client for linux on arch. It sends requests through mirrors and stores
// downloads in the cache of f.
func New(f *fetch.Client, mirrors *fetch.Mirrors, arch string) *Client {
	return &Client{fetch: f, mirrors: mirrors, arch: arch, sessions: map[string]*session{}}
}

// An Image is a resolved image: its index, manifest and config are in the cache, its
// layers may not be.
type Image struct {
	bundle.Image // without the sizes of the layers

	// Source is where the reference was resolved to Target. It is empty for an image
	// that is named by digest.
	Source fetch.Source
	// Site is the registry, or its mirror.
	Site string

	repo name.Repository
	// blobs are the layers in the registry, in the order of Layers.
	blobs []v1.Descriptor
}

// A session is a repository with the permission to pull from it.
type session struct {
	mu   sync.Mutex
	http *http.Client    // nil before the login
	head []remote.Option // for HEAD requests
}

// open gets the permission to pull from a repository, once per repository. It does not keep an error.
func (c *Client) open(ctx context.Context, repo name.Repository) (*session, error) {
	c.mu.Lock()
	s := c.sessions[repo.Name()]
	if s == nil {
		s = &session{}
		c.sessions[repo.Name()] = s
	}
	c.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.http != nil {
		return s, nil
	}
	tr, err := c.logIn(ctx, repo, transport.PullScope)
	if err != nil {
		return nil, err
	}
	s.http = &http.Client{Transport: sessionTransport{tr}}
	s.head = []remote.Option{remote.WithTransport(tr)}
	return s, nil
}

// Wanted is an image to resolve.
type Wanted struct {
	Name      string // of the component
	Reference string // full reference
	// Digest, if not empty, is the required digest: "sha256:<hex>". The registry is then
	// asked for this digest and not for the tag.
	Digest string
	// Fixed means that the tag does not change, like the tags of released components.
	// It is resolved once and then remembered.
	Fixed bool
}

// Resolve resolves a reference for the client's platform and downloads everything but the
// layers.
//
// If the image does not exist, or not for the platform, the error is a
// *fetch.MissingError.
func (c *Client) Resolve(ctx context.Context, w Wanted) (*Image, error) {
	img, err := c.resolve(ctx, w)
	if err != nil {
		return nil, fmt.Errorf("resolving %s: %w", w.Reference, oci.Explain(w.Reference, err))
	}
	return img, nil
}

func (c *Client) resolve(ctx context.Context, w Wanted) (*Image, error) {
	ref, err := name.ParseReference(w.Reference)
	if err != nil {
		return nil, fault.Wrap(err, fault.Usage, "")
	}
	if d, ok := ref.(name.Digest); ok {
		if w.Digest != "" && w.Digest != d.DigestStr() {
			return nil, fault.New(fault.Usage, "--checksum requires %s to have digest %s", w.Reference, w.Digest).Hint("use the same digest in both, or give only one")
		}
		w.Digest = d.DigestStr()
	}
	img := &Image{repo: ref.Context()}
	img.Name, img.Reference = w.Name, w.Reference
	img.Site = c.mirrors.Site(&url.URL{Scheme: "https", Host: img.repo.RegistryStr()})
	known := true
	if w.Digest != "" {
		_, img.Target, err = c.byDigest(ctx, img.repo, w.Digest)
	} else {
		img.Target, img.Source, known, err = c.byTag(ctx, ref, w.Fixed)
	}
	if err != nil {
		return nil, err
	}
	m, err := oci.Resolve(ctx, source{c, img.repo, img.Reference}, &img.Image, c.arch)
	if img.blobs = m.Layers; err != nil || known {
		return img, err
	}
	// Only now: a wrong image may be corrected in the registry.
	return img, c.remember(ref, memory{img.Target, img.Source})
}

// byTag returns the index or manifest that a tag points to, its source, and whether it
// was in the cache.
func (c *Client) byTag(ctx context.Context, ref name.Reference, fixed bool) (d bundle.Descriptor, source fetch.Source, known bool, err error) {
	m, known := c.recall(ref)
	if known && !(fixed && !c.fetch.Refresh) {
		known, err = c.unmoved(ctx, ref, m.Target)
	}
	if known || err != nil {
		return m.Target, m.Source, true, err
	}
	body, source, err := c.ask(ctx, ref)
	if err != nil {
		return d, source, false, err
	}
	if d, err = describe(ref, body); err != nil {
		return d, source, false, err
	}
	return d, source, false, c.store(ctx, d, body)
}

func (c *Client) unmoved(ctx context.Context, ref name.Reference, d bundle.Descriptor) (bool, error) {
	s, err := c.open(ctx, ref.Context())
	if err != nil {
		return false, c.explain(ref, err)
	}
	// Not every registry supports HEAD. If it does, an unchanged index or manifest
	// need not be downloaded again.
	now, err := remote.Head(ref, append(slices.Clone(s.head), remote.WithContext(ctx))...)
	return err == nil && now.Digest.String() == d.Digest, nil
}

func (c *Client) byDigest(ctx context.Context, repo name.Repository, digest string) (body []byte, d bundle.Descriptor, err error) {
	if _, err := v1.NewHash(digest); err != nil {
		return nil, d, fault.Wrap(err, fault.Usage, "write a digest as sha256:HEX with 64 hexadecimal digits")
	}
	body, ok, err := c.fetch.Cache.Read(ctx, oci.Hex(digest))
	if err != nil {
		return nil, d, err
	}
	if !ok {
		if body, _, err = c.ask(ctx, repo.Digest(digest)); err != nil {
			return nil, d, err
		}
		if err := c.store(ctx, bundle.Descriptor{Digest: digest}, body); err != nil {
			return nil, d, err
		}
	}
	d, err = describe(repo.Digest(digest), body)
	return body, d, err
}

// describe is oci.Describe with a hint for content that no registry returns.
func describe(ref name.Reference, body []byte) (bundle.Descriptor, error) {
	d, err := oci.Describe(body)
	switch {
	case err == nil, errors.Is(err, platform.ErrSchema1): // see oci.Explain
		return d, err
	case !json.Valid(body):
		return d, fault.Wrap(err, fault.Failure, fetch.PageHint)
	}
	return d, fault.Wrap(err, fault.Failure, "check the name, and what the registry has there: skopeo inspect --raw docker://"+ref.Name())
}

func (c *Client) ask(ctx context.Context, ref name.Reference) ([]byte, fetch.Source, error) {
	s, err := c.open(ctx, ref.Context())
	if err != nil {
		return nil, fetch.Source{}, c.explain(ref, err)
	}
	u := address(ref.Context(), "manifests", ref.Identifier())
	body, source, err := c.fetch.Ask(ctx, fetch.Question{URL: u, Accept: strings.Join(platform.Accepted(), ", "), Max: bundle.MaxDocument, HTTP: s.http})
	if err != nil {
		return nil, source, c.explain(ref, err)
	}
	return body, source, nil
}

// address is the URL of an object in a repository. Plain http is possible through a mirror
// only.
func address(repo name.Repository, kind, id string) string {
	u := url.URL{Scheme: "https", Host: repo.RegistryStr(), Path: "/v2/" + repo.RepositoryStr() + "/" + kind + "/" + id}
	return u.String()
}

// A memory is what the cache knows about a reference: its target when an image for the
// architecture was found there, and the source.
type memory struct {
	Target bundle.Descriptor `json:"target"`
	Source fetch.Source      `json:"source"`
}

func (c *Client) memoryKey(ref name.Reference) string {
	return "target of " + ref.Name() + " for linux/" + c.arch
}

func (c *Client) recall(ref name.Reference) (m memory, ok bool) {
	text, ok := c.fetch.Recall(c.memoryKey(ref))
	return m, ok && json.Unmarshal([]byte(text), &m) == nil
}

func (c *Client) remember(ref name.Reference, m memory) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return c.fetch.Remember(c.memoryKey(ref), string(text))
}

func (c *Client) manifest(ctx context.Context, repo name.Repository, d bundle.Descriptor) ([]byte, error) {
	body, _, err := c.byDigest(ctx, repo, d.Digest)
	if err == nil && int64(len(body)) != d.Size {
		err = fmt.Errorf("manifest %s has %d bytes, but its descriptor lists %d", d.Digest, len(body), d.Size)
	}
	return body, err
}

func (c *Client) store(ctx context.Context, d bundle.Descriptor, b []byte) error {
	_, _, err := c.fetch.Cache.Put(ctx, bytes.NewReader(b), oci.Hex(d.Digest))
	if mismatch := (*fetch.MismatchError)(nil); errors.As(err, &mismatch) {
		mismatch.Name = "manifest " + d.Digest
	}
	return err
}

// A source has the documents and configs of an image in a repository.
type source struct {
	*Client
	repo      name.Repository
	reference string // in messages
}

func (s source) Document(ctx context.Context, d ocispec.Descriptor) ([]byte, error) {
	return s.manifest(ctx, s.repo, bundle.Descriptor{Digest: d.Digest.String(), Size: d.Size})
}

func (s source) Config(ctx context.Context, d ocispec.Descriptor) ([]byte, error) {
	hash, err := v1.NewHash(d.Digest.String())
	if err != nil {
		return nil, err
	}
	if d.Size <= 0 || d.Size > bundle.MaxDocument {
		return nil, fmt.Errorf("the size of config %s is %d, not between 1 and %d", d.Digest, d.Size, bundle.MaxDocument)
	}
	if b, ok, err := s.fetch.Cache.Read(ctx, hash.Hex); ok || err != nil {
		return b, err
	}
	dl, err := s.download(ctx, s.repo, v1.Descriptor{Digest: hash, Size: d.Size}, "config of "+s.reference, nil)
	if err != nil {
		return nil, err
	}
	if _, err := s.fetch.Get(ctx, dl); err != nil {
		return nil, s.explainBlob(s.repo, s.reference, err)
	}
	b, _, err := s.fetch.Cache.Read(ctx, hash.Hex)
	return b, err
}

func (c *Client) download(ctx context.Context, repo name.Repository, d v1.Descriptor, what string, m fetch.Meter) (fetch.Download, error) {
	s, err := c.open(ctx, repo)
	if err != nil {
		return fetch.Download{}, err
	}
	u := address(repo, "blobs", d.Digest.String())
	return fetch.Download{Name: what, URL: u, SHA256: d.Digest.Hex, Size: d.Size, HTTP: s.http, Meter: m}, nil
}

// explain returns a *fetch.MissingError for the registry's "not found" errors, and adds a
// hint if access is denied.
func (c *Client) explain(ref name.Reference, err error) error {
	return c.explainAt(ref.Context(), ref.Name(), err)
}
