// Package push copies the images of a bundle to a registry, with upstream's digests.
//
// The bundle has layers uncompressed, in one stream. So push reads the documents first, asks the
// registry what is missing, and refuses what it cannot push before it sends anything. Then it reads
// the layers once, in their order, and compresses each missing layer as upstream did.
package push

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/distribution/reference"

	"airlift/builder/registry"
	"airlift/bundle"
	"airlift/bundle/blobs"
	"airlift/internal/fault"
	"airlift/internal/progress"
)

// Options are the options of a push.
type Options struct {
	File *bundle.File
	// Base is the base of an additional bundle. It is nil if layers that are only in the base
	// are not expected, or in the registry already.
	Base *bundle.File
	// Target is a registry, with a path if wanted: "registry.example:5000/mirror".
	Target   string
	Registry *registry.Client
	// Progress shows the progress; nil shows nothing.
	Progress *progress.Display
}

// A Pushed is an image in the registry.
type Pushed struct {
	// Reference is the image's name in the bundle.
	Reference string `json:"reference"`
	// Pushed is its name in the registry, by tag if the reference has one.
	Pushed string `json:"pushed"`
	// Digest is the digest under this name: the digest of upstream's index, or without an index the
	// digest of the manifest for the bundle's platform.
	Digest string `json:"digest"`
	// Upstream is the digest that the reference has upstream.
	Upstream string `json:"upstream"`
	// Manifest is the digest of the manifest for the bundle's platform.
	Manifest string `json:"manifest"`
}

// A Result describes what was pushed.
type Result struct {
	Images []Pushed `json:"images"`
	// Sent counts the layers that were sent, Present the layers that the registry already had.
	Sent    int `json:"layersSent"`
	Present int `json:"layersPresent"`
	// Bytes is the size of the layers that were sent.
	Bytes int64 `json:"bytesSent"`
}

type pusher struct {
	Options
	Result
	blobs        *blobs.Bundle
	documents    map[string][]byte // by digest
	images       []image
	repositories map[string]*registry.Repository
	to           map[string][]string // repositories that do not have a layer, by digest
}

// Run pushes all images of a bundle. It may be repeated: what the registry has is not sent
// again.
func Run(ctx context.Context, o Options) (*Result, error) {
	b, err := blobs.Open(o.File, o.Base)
	if err != nil {
		return nil, err
	}
	m := b.Manifest()
	if len(m.Images) == 0 {
		return nil, fault.New(fault.Usage, "%s has no images", o.File.Path()).Hint("push a bundle that was built with images")
	}
	p := &pusher{Options: o, blobs: b, repositories: map[string]*registry.Repository{}, to: map[string][]string{}}
	if p.documents, err = blobs.Documents(ctx, o.File, m.Images); err != nil {
		return nil, err
	}
	for _, i := range m.Images {
		repository, tag, err := repositoryOf(o.Target, i.Reference)
		if err != nil {
			return nil, err
		}
		layers, err := blobs.Layers(o.File, i, p.documents[i.Manifest.Digest])
		if err != nil {
			return nil, err
		}
		p.images = append(p.images, image{i, repository, tag, layers})
	}
	missing, err := p.missing(ctx)
	if err != nil {
		return nil, err
	}
	if err := p.pushLayers(ctx, missing); err != nil {
		return nil, err
	}
	for _, i := range p.images {
		pushed, err := p.pushImage(ctx, i)
		if err != nil {
			return nil, err
		}
		p.Images = append(p.Images, pushed)
	}
	return &p.Result, nil
}

// pushLayers makes the layers and sends each to the repositories that do not have it.
func (p *pusher) pushLayers(ctx context.Context, missing []*blobs.Source) error {
	if len(missing) == 0 {
		return nil
	}
	var total int64
	for _, s := range missing {
		total += s.Size * int64(len(p.to[s.Digest]))
	}
	item := p.Progress.Item("pushing layers to "+p.Target, total)
	err := p.blobs.Make(ctx, missing, func(s *blobs.Source, content *io.SectionReader) error {
		open := func() (io.ReadCloser, error) {
			return io.NopCloser(io.NewSectionReader(content, 0, s.Size)), nil
		}
		for _, name := range p.to[s.Digest] {
			repo, err := p.repository(ctx, name)
			if err != nil {
				return err
			}
			if err := repo.PushBlob(ctx, registry.Blob{Digest: s.Digest, Size: s.Size, Open: open}, item.Add); err != nil {
				return err
			}
			p.Sent++
			p.Bytes += s.Size
		}
		return nil
	})
	if err != nil {
		item.Failed()
		return err
	}
	item.Done(fmt.Sprintf("%d layers pushed", p.Sent))
	return nil
}

// pushImage pushes the documents of an image, whose layers are in the registry.
func (p *pusher) pushImage(ctx context.Context, i image) (Pushed, error) {
	pushed := Pushed{Reference: i.Reference, Digest: i.Target.Digest, Upstream: i.Target.Digest, Manifest: i.Manifest.Digest}
	name := func(digest string) string {
		if i.tag == "" {
			return i.repository + "@" + digest
		}
		return i.repository + ":" + i.tag
	}
	pushed.Pushed = name(i.Target.Digest)
	repo, err := p.repository(ctx, i.repository)
	if err != nil {
		return pushed, err
	}
	config := p.documents[i.Config.Digest]
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(config)), nil }
	if err := repo.PushBlob(ctx, registry.Blob{Digest: i.Config.Digest, Size: i.Config.Size, Open: open}, func(int64) {}); err != nil {
		return pushed, err
	}
	put := func(d bundle.Descriptor, tag string) error {
		if repo.Has(ctx, cmp.Or(tag, d.Digest)) == d.Digest {
			return nil
		}
		return repo.PushDocument(ctx, d, p.documents[d.Digest], tag)
	}
	if err := put(i.Manifest, ""); err != nil {
		return pushed, err
	}
	for _, index := range slices.Backward(i.Indexes) {
		if err = put(index, ""); err != nil {
			break
		}
	}
	if err == nil {
		err = put(i.Target, i.tag)
	}
	if i.Target.Digest != i.Manifest.Digest && registry.IncompleteIndex(err) {
		pushed.Digest = i.Manifest.Digest
		pushed.Pushed = name(i.Manifest.Digest)
		err = put(i.Manifest, i.tag)
	}
	return pushed, err
}

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
				p.Present++
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
