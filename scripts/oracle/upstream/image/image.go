// Package image creates container images of the built components, without a container
// engine. Names, tags, users, entry points and layers are as in upstream's images. The
// bytes depend only on the components, Debian's packages and this package.
package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"airlift/scripts/oracle/upstream/components"
)

// Builder creates images from the components in Cache and stores their blobs in its directory
// images/.
type Builder struct {
	Cache string
	Log   io.Writer
	// TestImages are references of images of upstream's own tests, which are created in addition to
	// the release's images. ListTestImages has them.
	TestImages []string
	// AddOns creates the images of AddOnRecipes, too.
	AddOns bool
}

// Manifest is a manifest or an index for a registry.
type Manifest struct {
	Repository string   // "coredns/coredns"
	Tags       []string // none for a single platform's manifest
	Digest     v1.Hash
	MediaType  types.MediaType
	Data       []byte
	Children   []v1.Descriptor // the platforms of an index, including those that the rig does not have
}

// Store returns the store of the builder's blobs.
func (b *Builder) Store() *Store { return &Store{filepath.Join(b.Cache, "images")} }

// Build creates the images that are not in the cache yet, of one release for one or more
// architectures. It returns the manifests of each host: per image the index, and the manifest of each
// architecture. The components must be built.
func (b *Builder) Build(ctx context.Context, release ...components.Release) (map[string][]Manifest, error) {
	sites := make(map[string][]Manifest)
	var images [][]spec // by name, then by architecture
	for _, r := range release {
		specs, err := b.all(r)
		if err != nil {
			return nil, err
		}
		if images == nil {
			images = make([][]spec, len(specs))
		}
		for i, s := range specs {
			s.arch = r.Arch()
			images[i] = append(images[i], s)
		}
	}
	for _, image := range images {
		manifests, err := b.one(ctx, image)
		if err != nil {
			return nil, fmt.Errorf("making image %s: %w", image[0].reference(), err)
		}
		sites[image[0].host] = append(sites[image[0].host], manifests...)
	}
	return sites, nil
}

// one creates an image, and returns its index and the manifests of the architectures.
func (b *Builder) one(ctx context.Context, image []spec) ([]Manifest, error) {
	s := image[0]
	index := v1.IndexManifest{SchemaVersion: 2, MediaType: s.kind.index}
	var singles []Manifest
	for _, one := range image {
		single, err := b.single(ctx, one)
		if err != nil {
			return nil, err
		}
		singles = append(singles, single)
		index.Manifests = append(index.Manifests, v1.Descriptor{
			MediaType: s.kind.manifest, Size: int64(len(single.Data)), Digest: single.Digest,
			Platform: &v1.Platform{OS: "linux", Architecture: one.arch},
		})
	}
	for _, p := range absentPlatforms(image) {
		index.Manifests = append(index.Manifests, v1.Descriptor{
			MediaType: s.kind.manifest, Size: int64(len(singles[0].Data)), Digest: absent(s, p), Platform: &p,
		})
	}
	data, digest, err := b.Store().putJSON(index)
	if err != nil {
		return nil, err
	}
	return append([]Manifest{{
		Repository: s.repository, Tags: []string{s.tag}, Digest: digest,
		MediaType: s.kind.index, Data: data, Children: index.Manifests,
	}}, singles...), nil
}

// single creates an image of one architecture, and returns its manifest.
func (b *Builder) single(ctx context.Context, s spec) (Manifest, error) {
	start := time.Now()
	store := b.Store()
	config := v1.ConfigFile{
		Architecture: s.arch,
		OS:           "linux",
		Created:      v1.Time{Time: time.Unix(0, 0).UTC()},
		Config:       s.config,
		RootFS:       v1.RootFS{Type: "layers"},
	}
	manifest := v1.Manifest{SchemaVersion: 2, MediaType: s.kind.manifest}
	var size int64
	for _, spec := range s.layers {
		l, err := store.layer(ctx, s.arch, spec.key, spec.fill)
		if err != nil {
			return Manifest{}, err
		}
		manifest.Layers = append(manifest.Layers, v1.Descriptor{MediaType: s.kind.layer, Size: l.Size, Digest: l.Digest})
		config.RootFS.DiffIDs = append(config.RootFS.DiffIDs, l.DiffID)
		config.History = append(config.History, v1.History{Created: config.Created})
		size += l.Size
	}
	data, digest, err := store.putJSON(config)
	if err != nil {
		return Manifest{}, err
	}
	manifest.Config = v1.Descriptor{MediaType: s.kind.config, Size: int64(len(data)), Digest: digest}
	if data, digest, err = store.putJSON(manifest); err != nil {
		return Manifest{}, err
	}
	fmt.Fprintf(b.Log, "image %s %s, %d layers, %.1f MB, %.0fs\n",
		s.reference(), s.arch, len(s.layers), float64(size)/1e6, time.Since(start).Seconds())
	return Manifest{Repository: s.repository, Digest: digest, MediaType: s.kind.manifest, Data: data}, nil
}

// absent is the digest in an index for a platform that the rig does not build. Real indexes list
// several platforms and clients have to choose; a request for this one gets a 404.
func absent(s spec, p v1.Platform) v1.Hash {
	sum := sha256.Sum256([]byte(s.host + "/" + s.repository + ":" + s.tag + " for " + p.String() + " is not built"))
	return v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(sum[:])}
}
