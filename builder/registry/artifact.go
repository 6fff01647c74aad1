package registry

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// The methods in this file are for artifacts in a registry that are not images, such as charts. If
// it does not exist, the error is a *fetch.MissingError.

// Tags lists the tags of a repository.
func (c *Client) Tags(ctx context.Context, repo name.Repository) ([]string, error) {
	s, err := c.open(ctx, repo)
	if err != nil {
		return nil, c.explainAt(repo, repo.Name(), err)
	}
	tags, err := remote.List(repo, append(slices.Clone(s.head), remote.WithContext(ctx))...)
	if err != nil {
		return nil, c.explainAt(repo, repo.Name(), err)
	}
	return tags, nil
}

// Artifact returns the manifest that a tag points to.
func (c *Client) Artifact(ctx context.Context, tag name.Tag) (*v1.Manifest, error) {
	body, _, err := c.ask(ctx, tag)
	if err != nil {
		return nil, err
	}
	m, err := v1.ParseManifest(bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("reading the manifest of %s: %w", tag, err)
	}
	return m, nil
}

// Blob returns a blob of at most limit bytes.
func (c *Client) Blob(ctx context.Context, repo name.Repository, digest string, limit int64) ([]byte, error) {
	b, err := c.blob(ctx, repo, digest, limit)
	if err != nil {
		return nil, c.explain(repo.Digest(digest), err)
	}
	return b, nil
}

// Authorization returns the credentials for a path on a host that is not a registry, such as a
// chart repository. They are in the same files as the credentials of registries.
func (c *Client) Authorization(ctx context.Context, host, path string) (*authn.AuthConfig, error) {
	auth, err := credentials(c.accountAt(host, path), c.AuthFile)
	if err != nil {
		return nil, err
	}
	return authn.Authorization(ctx, auth)
}
