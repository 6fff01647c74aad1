package images

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/distribution/reference"

	"airlift/bundle"
	"airlift/bundle/blobs"
	"airlift/bundle/blobs/ondemand"
	"airlift/internal/fault"
)

// A catalog lists everything that is served. It does not change.
type catalog struct {
	repositories map[string]*repository // by name with the registry: "docker.io/library/busybox"
	documents    map[string]bool        // digests
	served       []Served
}

// A Served is an image of the bundles.
type Served struct {
	Reference string `json:"reference"` // "docker.io/library/busybox:1.36"
	Digest    string `json:"digest"`    // of its index, or of its manifest if there is no index
	ID        string `json:"id"`        // digest of its config
	Size      int64  `json:"size"`      // of its compressed layers, in bytes
	// Complete is set if all of its layers can be served.
	Complete bool `json:"complete"`
}

// Registry is the registry in the name.
func (s Served) Registry() string {
	host, _, _ := strings.Cut(s.Reference, "/")
	return host
}

// A repository has blobs by digest.
type repository struct {
	tags      map[string]string        // digests
	manifests map[string]ondemand.Blob // indexes and manifests
	blobs     map[string]ondemand.Blob // configs and layers
}

// newCatalog reads the documents of the bundles, in order of precedence. With an error, the catalog has what the
// other bundles have.
func newCatalog(ctx context.Context, store *ondemand.Store, files []*bundle.File) (*catalog, error) {
	c := &catalog{repositories: map[string]*repository{}, documents: map[string]bool{}}
	layers := map[string]ondemand.Blob{} // by digest, from the first bundle that can give it
	var images []image
	var errs []error
	for _, f := range files {
		found, err := readImages(ctx, store, f, files, layers)
		images, errs = append(images, found...), append(errs, err)
	}
	for _, i := range images {
		c.add(i, layers)
	}
	slices.SortFunc(c.served, func(a, b Served) int {
		return cmp.Or(strings.Compare(a.Reference, b.Reference), strings.Compare(a.Digest, b.Digest))
	})
	c.served = slices.Compact(c.served)
	return c, errors.Join(errs...)
}

// An image is an image of a bundle with the layers of its manifest.
type image struct {
	bundle.Image
	file   *bundle.File
	name   reference.Named
	layers []bundle.Descriptor
}

// readImages returns the images of a bundle, and adds the layers that it has to layers. The base of an additional
// bundle is one of files, or its layers are left out.
func readImages(ctx context.Context, store *ondemand.Store, f *bundle.File, files []*bundle.File, layers map[string]ondemand.Blob) (images []image, err error) {
	m, err := f.Manifest()
	if err != nil {
		return nil, err
	}
	var base *bundle.File
	if n := slices.IndexFunc(files, func(b *bundle.File) bool { return m.Base != nil && b.ManifestSHA256() == m.Base.ManifestSHA256 }); n >= 0 {
		base = files[n]
	}
	b, err := blobs.Open(f, base)
	if err != nil {
		return nil, err
	}
	var documents []ondemand.Blob
	for _, i := range m.Images {
		for _, d := range i.Documents() {
			documents = append(documents, document(f, d))
		}
	}
	if err := store.Prepare(ctx, documents); err != nil {
		return nil, err
	}
	for _, i := range m.Images {
		name, err := reference.ParseNormalizedNamed(i.Reference)
		if err != nil {
			return nil, fault.New(fault.Bundle, "%s: image %q: %w", f.Path(), i.Reference, err).Hint("run bundle verify")
		}
		manifest, err := store.Read(ctx, document(f, i.Manifest))
		if err != nil {
			return nil, err
		}
		descriptors, err := blobs.Layers(f, i, manifest)
		if err != nil {
			return nil, err
		}
		for n, d := range descriptors {
			s := b.Source(i.Reference, i.Layers[n], d)
			if _, ok := layers[d.Digest]; !ok && s != nil {
				layers[d.Digest] = ondemand.Blob{Source: s, File: b.FileOf(s)}
			}
		}
		images = append(images, image{i, f, name, descriptors})
	}
	return images, nil
}

func document(f *bundle.File, d bundle.Descriptor) ondemand.Blob {
	return ondemand.Blob{Source: blobs.Document(d), File: f, Document: true}
}

// add adds an image. An image that was added earlier keeps its tag.
func (c *catalog) add(i image, layers map[string]ondemand.Blob) {
	r := c.repositories[i.name.Name()]
	if r == nil {
		r = &repository{map[string]string{}, map[string]ondemand.Blob{}, map[string]ondemand.Blob{}}
		c.repositories[i.name.Name()] = r
	}
	// A tag next to a digest only explains the digest.
	_, hasDigest := i.name.(reference.Digested)
	if t, ok := i.name.(reference.Tagged); ok && !hasDigest && r.tags[t.Tag()] == "" {
		r.tags[t.Tag()] = i.Target.Digest
	}
	for _, d := range i.Documents() {
		c.documents[d.Digest] = true
		into := r.manifests
		if d == i.Config {
			into = r.blobs
		}
		if _, ok := into[d.Digest]; !ok {
			into[d.Digest] = document(i.file, d)
		}
	}
	s := Served{Reference: i.name.String(), Digest: i.Target.Digest, ID: i.Config.Digest, Complete: true}
	for _, d := range i.layers {
		s.Size += d.Size
		b, ok := layers[d.Digest]
		if !ok {
			s.Complete = false
			continue
		}
		r.blobs[d.Digest] = b
	}
	if t, ok := i.name.(reference.Tagged); !ok || hasDigest || r.tags[t.Tag()] == i.Target.Digest { // not by its tag only
		c.served = append(c.served, s)
	}
}

// manifest returns the index or manifest that a tag or digest names.
func (r *repository) manifest(reference string) (ondemand.Blob, bool) {
	if digest, ok := r.tags[reference]; ok {
		reference = digest
	}
	b, ok := r.manifests[reference]
	return b, ok
}

// sortedTags returns at most n tags that follow last, and whether there are more. A negative n is no limit.
func (r *repository) sortedTags(n int, last string) (tags []string, more bool) {
	tags = slices.Sorted(maps.Keys(r.tags))
	first, found := slices.BinarySearch(tags, last)
	if found {
		first++
	}
	tags = tags[first:]
	if n >= 0 && n < len(tags) {
		return tags[:n], true
	}
	return tags, false
}
