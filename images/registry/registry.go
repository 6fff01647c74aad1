// Package registry brings images from registries into the cache of package
// fetch, as a bundle holds them: indexes, manifests and configs as upstream's
// exact bytes, layers uncompressed.
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

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"airlift/bundle"
	"airlift/bundle/fetch"
	"airlift/fault"
)

// A Client pulls images for one platform.
type Client struct {
	fetch   *fetch.Client
	mirrors *fetch.Mirrors
	arch    string

	mu       sync.Mutex
	sessions map[string]*session // by repository
}

// New returns a client for linux on arch. Registries are asked through
// mirrors; what they deliver goes into the cache of f.
func New(f *fetch.Client, mirrors *fetch.Mirrors, arch string) *Client {
	return &Client{fetch: f, mirrors: mirrors, arch: arch, sessions: map[string]*session{}}
}

// An Image is a resolved image: its index, manifest and config are in the
// cache, its layers not yet.
type Image struct {
	bundle.Image // without the sizes of the layers

	repo name.Repository
	// blobs are the layers as the registry has them, in the order of Layers.
	blobs []v1.Descriptor
}

// A session is a repository with permission to pull from it.
type session struct {
	once sync.Once
	http *http.Client
	opts []remote.Option
	err  error
}

// open asks a repository's registry once for the permission to pull.
func (c *Client) open(ctx context.Context, repo name.Repository) (*session, error) {
	c.mu.Lock()
	s := c.sessions[repo.Name()]
	if s == nil {
		s = &session{}
		c.sessions[repo.Name()] = s
	}
	c.mu.Unlock()
	s.once.Do(func() {
		auth, err := authn.Resolve(ctx, authn.DefaultKeychain, c.account(repo))
		if err != nil {
			s.err = fmt.Errorf("reading registry credentials: %w", err)
			return
		}
		base := transport.NewRetry(c.mirrors, transport.WithRetryStatusCodes(
			http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout))
		tr, err := transport.NewWithContext(ctx, repo.Registry, auth, base, []string{repo.Scope(transport.PullScope)})
		if err != nil {
			s.err = fmt.Errorf("logging in: %w", err)
			return
		}
		s.http = &http.Client{Transport: tr}
		s.opts = []remote.Option{remote.WithTransport(tr)}
	})
	return s, s.err
}

// account is whom to authenticate with: a mirrored registry's mirror, which
// must not be told the password for the registry itself.
func (c *Client) account(repo name.Repository) authn.Resource {
	to, ok := c.mirrors.Lookup(repo.RegistryStr())
	if !ok {
		return repo
	}
	reg, err := name.NewRegistry(to.Host)
	if err != nil {
		return repo.Registry
	}
	return reg
}

// Resolve finds out what a full reference means for the client's platform and
// fetches everything but the layers. A tag that is fixed, as those of
// released components are, is looked up once and then remembered.
//
// An image that is missing, or not there for the platform, is a
// *fetch.MissingError.
func (c *Client) Resolve(ctx context.Context, component, reference string, fixed bool) (*Image, error) {
	img, err := c.resolve(ctx, component, reference, fixed)
	if err != nil {
		return nil, fmt.Errorf("resolving %s: %w", reference, err)
	}
	return img, nil
}

func (c *Client) resolve(ctx context.Context, component, reference string, fixed bool) (*Image, error) {
	ref, err := name.ParseReference(reference)
	if err != nil {
		return nil, fault.Wrap(err, fault.Usage, "")
	}
	_, byDigest := ref.(name.Digest)
	target, known, err := c.target(ctx, ref, fixed || byDigest)
	if err != nil {
		return nil, err
	}
	img := &Image{repo: ref.Context()}
	img.Name, img.Reference, img.Target, img.Manifest = component, reference, target, target

	body, err := c.manifest(ctx, img.repo, target)
	if err != nil {
		return nil, err
	}
	if isIndex(target.MediaType) {
		if img.Manifest, err = c.choose(reference, body); err != nil {
			return nil, err
		}
		if body, err = c.manifest(ctx, img.repo, img.Manifest); err != nil {
			return nil, err
		}
	}
	var m v1.Manifest
	if err := json.Unmarshal(body, &m); err != nil {
		return nil, fmt.Errorf("reading manifest %s: %w", img.Manifest.Digest, err)
	}
	if m.Config.Digest.Algorithm != "sha256" {
		return nil, fmt.Errorf("manifest %s has no config: it is not a container image", img.Manifest.Digest)
	}
	img.Config = descriptor(m.Config)
	img.blobs = m.Layers
	if err := c.config(ctx, img); err != nil || known {
		return img, err
	}
	// Not before: what is wrong with an image may be put right.
	return img, c.remember(ref, target)
}

// target returns the descriptor a reference points to, and whether that was
// known before.
func (c *Client) target(ctx context.Context, ref name.Reference, fixed bool) (d bundle.Descriptor, known bool, err error) {
	d, known = c.recall(ref)
	if known && fixed && !c.fetch.Refresh {
		return d, true, nil
	}
	s, err := c.open(ctx, ref.Context())
	if err != nil {
		return d, false, c.explain(ref, err)
	}
	opts := append(s.opts, remote.WithContext(ctx))
	if known {
		// Not every registry answers HEAD well; where it does, it spares
		// fetching what has not changed.
		if now, err := remote.Head(ref, opts...); err == nil && now.Digest.String() == d.Digest {
			return d, true, nil
		}
	}
	got, err := remote.Get(ref, opts...)
	if err != nil {
		return d, false, c.explain(ref, err)
	}
	d = descriptor(got.Descriptor)
	if !isIndex(d.MediaType) && !isManifest(d.MediaType) {
		return d, false, fmt.Errorf("%s is of type %q, which is neither an image nor an index of images", d.Digest, d.MediaType)
	}
	return d, false, c.store(ctx, d, got.Manifest)
}

// memoryKey names what the cache remembers of a reference: what it pointed to
// when an image for the architecture was found there.
func (c *Client) memoryKey(ref name.Reference) string {
	return "target of " + ref.Name() + " for linux/" + c.arch
}

func (c *Client) recall(ref name.Reference) (d bundle.Descriptor, ok bool) {
	text, ok := c.fetch.Cache.Recall(c.memoryKey(ref))
	return d, ok && json.Unmarshal([]byte(text), &d) == nil
}

func (c *Client) remember(ref name.Reference, d bundle.Descriptor) error {
	text, err := json.Marshal(d)
	if err != nil {
		return err
	}
	return c.fetch.Cache.Remember(c.memoryKey(ref), string(text))
}

// manifest returns the bytes of an index or a manifest.
func (c *Client) manifest(ctx context.Context, repo name.Repository, d bundle.Descriptor) ([]byte, error) {
	if b, ok, err := c.fetch.Cache.Read(ctx, hexOf(d.Digest)); ok || err != nil {
		return b, err
	}
	ref := repo.Digest(d.Digest)
	s, err := c.open(ctx, repo)
	if err != nil {
		return nil, c.explain(ref, err)
	}
	got, err := remote.Get(ref, append(s.opts, remote.WithContext(ctx))...)
	if err != nil {
		return nil, c.explain(ref, err)
	}
	return got.Manifest, c.store(ctx, d, got.Manifest)
}

func (c *Client) store(ctx context.Context, d bundle.Descriptor, b []byte) error {
	_, _, err := c.fetch.Cache.Put(ctx, bytes.NewReader(b), hexOf(d.Digest))
	if mismatch := (*fetch.MismatchError)(nil); errors.As(err, &mismatch) {
		mismatch.Name = "manifest " + d.Digest
	}
	return err
}

// choose picks the manifest of the client's platform from an index.
func (c *Client) choose(reference string, index []byte) (bundle.Descriptor, error) {
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
		if m.Platform.OS == "linux" && m.Platform.Architecture == c.arch && isManifest(string(m.MediaType)) {
			return descriptor(m), nil
		}
		if p := m.Platform.OS + "/" + m.Platform.Architecture; !slices.Contains(has, p) {
			has = append(has, p)
		}
	}
	slices.Sort(has)
	return bundle.Descriptor{}, c.unsupported(reference, has)
}

func (c *Client) unsupported(reference string, has []string) error {
	return &fetch.MissingError{URL: reference, Why: fmt.Sprintf("has no image for linux/%s, only for %s", c.arch, strings.Join(has, ", "))}
}

// config fetches an image's config and learns the layers' digests from it.
func (c *Client) config(ctx context.Context, img *Image) error {
	b, ok, err := c.fetch.Cache.Read(ctx, hexOf(img.Config.Digest))
	if !ok && err == nil {
		b, err = c.fetchConfig(ctx, img)
	}
	if err != nil {
		return err
	}
	var cfg v1.ConfigFile
	if err := json.Unmarshal(b, &cfg); err != nil {
		return fmt.Errorf("reading config %s: %w", img.Config.Digest, err)
	}
	// Some tools leave the platform out; wrong is another matter.
	if cfg.Architecture != "" && (cfg.Architecture != c.arch || cfg.OS != "linux") {
		return c.unsupported(img.Reference, []string{cfg.OS + "/" + cfg.Architecture})
	}
	if len(cfg.RootFS.DiffIDs) != len(img.blobs) {
		return fmt.Errorf("config %s lists %d layers, but the manifest %d", img.Config.Digest, len(cfg.RootFS.DiffIDs), len(img.blobs))
	}
	for _, id := range cfg.RootFS.DiffIDs {
		img.Layers = append(img.Layers, bundle.Layer{DiffID: id.String()})
	}
	return nil
}

func (c *Client) fetchConfig(ctx context.Context, img *Image) ([]byte, error) {
	hash, err := v1.NewHash(img.Config.Digest)
	if err != nil {
		return nil, err
	}
	d, err := c.download(ctx, img, v1.Descriptor{Digest: hash}, "config of "+img.Reference, nil)
	if err != nil {
		return nil, err
	}
	if _, err := c.fetch.Get(ctx, d); err != nil {
		return nil, err
	}
	b, _, err := c.fetch.Cache.Read(ctx, hash.Hex)
	return b, err
}

// download describes how to get a blob.
func (c *Client) download(ctx context.Context, img *Image, d v1.Descriptor, what string, m fetch.Meter) (fetch.Download, error) {
	s, err := c.open(ctx, img.repo)
	if err != nil {
		return fetch.Download{}, err
	}
	u := url.URL{Scheme: img.repo.Scheme(), Host: img.repo.RegistryStr(),
		Path: "/v2/" + img.repo.RepositoryStr() + "/blobs/" + d.Digest.String()}
	return fetch.Download{Name: what, URL: u.String(), SHA256: d.Digest.Hex, HTTP: s.http, Meter: m}, nil
}

// explain turns a registry's way of saying that something is not there into a
// *fetch.MissingError, and says what to do about a refusal.
func (c *Client) explain(ref name.Reference, err error) error {
	e := (*transport.Error)(nil)
	if !errors.As(err, &e) {
		return err
	}
	switch e.StatusCode {
	case http.StatusNotFound:
		return &fetch.MissingError{URL: ref.Name()}
	case http.StatusUnauthorized, http.StatusForbidden:
		return fault.Wrap(err, fault.Failure,
			"there is no such image, or it needs a login; credentials are those of docker login "+c.account(ref.Context()).RegistryStr())
	}
	return err
}
