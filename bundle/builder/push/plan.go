package push

import (
	"context"
	"fmt"
	"strings"

	"github.com/distribution/reference"

	"airlift/bundle"
	"airlift/bundle/blobs"
	"airlift/images/registry"
)

// An image is an image of the bundle and where it goes.
type image struct {
	bundle.Image
	repository string // "registry.example/mirror/registry.k8s.io/pause"
	tag        string // empty for an image that is named by digest
	layers     []bundle.Descriptor
}

// repositoryOf returns the repository and the tag under target for a reference of the bundle.
// The name of upstream's registry is a part of the path, so that each image has a unique name.
func repositoryOf(target, ref string) (repository, tag string, err error) {
	named, err := reference.ParseNormalizedNamed(ref)
	if err != nil {
		return "", "", fmt.Errorf("image %q: %w", ref, err)
	}
	if tagged, ok := named.(reference.Tagged); ok {
		tag = tagged.Tag()
	}
	host := strings.ToLower(strings.ReplaceAll(reference.Domain(named), ":", "-"))
	return strings.TrimSuffix(target, "/") + "/" + host + "/" + reference.Path(named), tag, nil
}

// missing asks the registry which layers it does not have. p.to maps a layer's digest to the
// repositories without this layer.
func (p *pusher) missing(ctx context.Context) (list []*blobs.Source, err error) {
	asked := map[string]bool{}
	for _, i := range p.images {
		repo, err := p.repository(ctx, i.repository)
		if err != nil {
			return nil, err
		}
		for n, d := range i.layers {
			key := i.repository + "@" + d.Digest
			if asked[key] {
				continue
			}
			asked[key] = true
			has, err := repo.HasBlob(ctx, d.Digest)
			if err != nil {
				return nil, err
			}
			if has {
				p.present++
				continue
			}
			if p.to[d.Digest] == nil {
				s := p.blobs.Source(i.Reference, i.Layers[n], d)
				if s == nil {
					continue
				}
				list = append(list, s)
			}
			p.to[d.Digest] = append(p.to[d.Digest], i.repository)
		}
	}
	return list, p.blobs.Refusal("pushed")
}

// repository logs in to a repository, once.
func (p *pusher) repository(ctx context.Context, name string) (*registry.Repository, error) {
	if r := p.repositories[name]; r != nil {
		return r, nil
	}
	r, err := p.Registry.Repository(ctx, name)
	if err == nil {
		p.repositories[name] = r
	}
	return r, err
}
