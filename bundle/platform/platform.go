// Package platform finds the manifest of a platform in an index of an image. It finds the manifest
// that containerd uses on a node. A bundle has only this manifest, and upstream's index unchanged.
package platform

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/containerd/platforms"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// maxIndexes limits the indexes from an image's target to its manifest. Tools write one, or two.
const maxIndexes = 16

// A Source has the blobs of an image.
type Source interface {
	// Document returns an index or a manifest.
	Document(context.Context, ocispec.Descriptor) ([]byte, error)
	Config(context.Context, ocispec.Descriptor) ([]byte, error)
}

// A Reader is a Source in which documents and configs are in the same place.
type Reader func(context.Context, ocispec.Descriptor) ([]byte, error)

// Document returns an index or a manifest.
func (r Reader) Document(ctx context.Context, d ocispec.Descriptor) ([]byte, error) { return r(ctx, d) }

// Config returns a config.
func (r Reader) Config(ctx context.Context, d ocispec.Descriptor) ([]byte, error) { return r(ctx, d) }

// A MissingError is the error for an image that a platform's nodes cannot use.
type MissingError struct {
	Arch string
	Has  []string // the platforms that there are, sorted
}

func (e *MissingError) Error() string {
	if len(e.Has) == 0 {
		return fmt.Sprintf("has no image for linux/%s: its index lists no image with a platform", e.Arch)
	}
	return fmt.Sprintf("has no image for linux/%s, only for %s", e.Arch, strings.Join(e.Has, ", "))
}

// ErrSchema1 is the error for an image in the format that registries used before 2016.
var ErrSchema1 = errors.New("it is an image of schema 1, which containerd does not support")

// ErrSize is the error for an image that containerd finds and the CRI cannot use, also after a pull.
var ErrSize = errors.New("the CRI of containerd cannot use such an image: it computes the size of the first one that has a platform")

// Docker's media types. OCI's media types are in ocispec.
const (
	dockerIndex    = "application/vnd.docker.distribution.manifest.list.v2+json"
	dockerManifest = "application/vnd.docker.distribution.manifest.v2+json"
)

// IsIndex reports whether mediaType is the media type of an index.
func IsIndex(mediaType string) bool {
	return mediaType == ocispec.MediaTypeImageIndex || mediaType == dockerIndex
}

// IsManifest reports whether mediaType is the media type of an image's manifest.
func IsManifest(mediaType string) bool {
	return mediaType == ocispec.MediaTypeImageManifest || mediaType == dockerManifest
}

// layers are the media types of layers that containerd unpacks on a node. Encrypted layers, and layers for other
// snapshotters such as nydus and EROFS, need more than its default configuration.
var layers = []string{
	ocispec.MediaTypeImageLayer, ocispec.MediaTypeImageLayerGzip, ocispec.MediaTypeImageLayerZstd,
	"application/vnd.oci.image.layer.nondistributable.v1.tar",
	"application/vnd.oci.image.layer.nondistributable.v1.tar+gzip",
	"application/vnd.oci.image.layer.nondistributable.v1.tar+zstd",
	"application/vnd.docker.image.rootfs.diff.tar", "application/vnd.docker.image.rootfs.diff.tar.gzip",
	"application/vnd.docker.image.rootfs.diff.tar.zstd",
	"application/vnd.docker.image.rootfs.foreign.diff.tar", "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip",
}

// IsLayer reports whether mediaType is the media type of a layer that containerd unpacks.
func IsLayer(mediaType string) bool { return slices.Contains(layers, mediaType) }

// Accepted lists the media types of indexes and manifests.
func Accepted() []string {
	return []string{ocispec.MediaTypeImageIndex, dockerIndex, ocispec.MediaTypeImageManifest, dockerManifest}
}

// A Path is the way from an image's target to its manifest. It has one document if the target
// is the manifest, and two for most indexes.
type Path []ocispec.Descriptor

// Manifest is the manifest, the last document of the path.
func (p Path) Manifest() ocispec.Descriptor { return p[len(p)-1] }

// Find returns the path to the manifest that containerd uses on linux nodes of an architecture,
// and the manifest. It chooses as Manifest of its package core/images does with the matcher platforms.Default of
// such a node. A target that is a manifest is returned without a look at its config.
//
// If there is none, or one for another architecture that some of these nodes can run (386 on
// amd64, arm on arm64), the error is a *MissingError.
func Find(ctx context.Context, from Source, target ocispec.Descriptor, arch string) (path Path, manifest []byte, err error) {
	m := nodeMatcher(arch)
	path = Path{target}
	var has []ocispec.Platform // in the indexes of the path
	for {
		d := path.Manifest()
		body, err := from.Document(ctx, d)
		if err != nil {
			return nil, nil, err
		}
		if err := check(body, d); err != nil {
			return nil, nil, err
		}
		if IsManifest(d.MediaType) {
			if len(path) > 1 && d.Platform == nil {
				p, err := configPlatform(ctx, from, d, body)
				if err != nil {
					return nil, nil, err
				}
				d.Platform, has = &p, append(has, p)
			}
			if len(path) > 1 && !m.runs(*d.Platform) {
				return nil, nil, missing(arch, has)
			}
			return path, body, nil
		}
		if len(path) > maxIndexes {
			return nil, nil, fmt.Errorf("index %s is in more than %d indexes", d.Digest, maxIndexes)
		}
		var index ocispec.Index
		if err := json.Unmarshal(body, &index); err != nil {
			return nil, nil, fmt.Errorf("reading index %s: %w", d.Digest, err)
		}
		for _, child := range index.Manifests {
			if child.Platform != nil {
				has = append(has, *child.Platform)
			}
		}
		child, ok := m.best(index.Manifests)
		if !ok {
			return nil, nil, missing(arch, has)
		}
		if first := m.first(index.Manifests); first.Digest != child.Digest {
			return nil, nil, fmt.Errorf("index %s lists %s, which has no platform, after %s for %s: %w", d.Digest, child.Digest, first.Digest, Format(*first.Platform), ErrSize)
		}
		path = append(path, child)
	}
}

// check compares the content of an index or a manifest with its media type.
func check(body []byte, d ocispec.Descriptor) error {
	var doc struct {
		MediaType                           string
		Config, Layers, Manifests, FSLayers json.RawMessage
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		return fmt.Errorf("reading manifest %s: %w", d.Digest, err)
	}
	what := fmt.Sprintf("%s of type %q", d.Digest, d.MediaType)
	switch {
	case len(doc.FSLayers) > 0:
		return fmt.Errorf("reading %s: %w", d.Digest, ErrSchema1)
	case IsManifest(d.MediaType) && (len(doc.Manifests) > 0 || IsIndex(doc.MediaType)):
		return fmt.Errorf("%s is an index", what)
	case IsIndex(d.MediaType) && (len(doc.Config) > 0 || len(doc.Layers) > 0 || IsManifest(doc.MediaType)):
		return fmt.Errorf("%s is a manifest", what)
	case !IsManifest(d.MediaType) && !IsIndex(d.MediaType):
		return fmt.Errorf("%s is not an image or an image index", what)
	case len(d.Data) > 0 && digest.FromBytes(d.Data) != d.Digest:
		return fmt.Errorf("the data in the descriptor of %s has another digest", d.Digest)
	}
	return nil
}

func configPlatform(ctx context.Context, from Source, d ocispec.Descriptor, body []byte) (p ocispec.Platform, err error) {
	var manifest struct{ Config ocispec.Descriptor }
	if err := json.Unmarshal(body, &manifest); err != nil {
		return p, fmt.Errorf("reading manifest %s: %w", d.Digest, err)
	}
	config, err := from.Config(ctx, manifest.Config)
	if err != nil {
		return p, err
	}
	if err := json.Unmarshal(config, &p); err != nil {
		return p, fmt.Errorf("reading config %s: %w", manifest.Config.Digest, err)
	}
	return p, nil
}

// Usable returns a *MissingError if linux nodes of an architecture cannot use images for p.
func Usable(p ocispec.Platform, arch string) error {
	if nodeMatcher(arch).runs(p) {
		return nil
	}
	return missing(arch, []ocispec.Platform{p})
}

// Same reports whether an os and an architecture, as a config has them, are linux on arch.
// Variants are not compared.
func Same(os, architecture, arch string) bool {
	p := platforms.Normalize(ocispec.Platform{OS: os, Architecture: architecture})
	return os != "" && p.OS == "linux" && p.Architecture == arch
}

// A matcher matches and compares platforms as containerd on a node does.
type matcher struct {
	platforms.MatchComparer
	arch string
}

// nodeMatcher returns platforms.Default of a node. amd64 nodes have no variant. arm64 nodes have
// the variant v8, which equals no variant.
func nodeMatcher(arch string) matcher {
	return matcher{platforms.Only(ocispec.Platform{OS: "linux", Architecture: arch}), arch}
}

// onLinux replaces an empty OS. On a node it means linux, elsewhere the OS of this machine.
func onLinux(p ocispec.Platform) ocispec.Platform {
	if p.OS == "" {
		p.OS = "linux"
	}
	return p
}

// matches also matches platforms that only some nodes can run.
func (m matcher) matches(p ocispec.Platform) bool { return m.Match(onLinux(p)) }

func (m matcher) runs(p ocispec.Platform) bool {
	return m.matches(p) && platforms.Normalize(p).Architecture == m.arch
}

// best returns the manifest or index that containerd reads. containerd reads only this one, even if
// it turns out to be for another platform.
func (m matcher) best(list []ocispec.Descriptor) (best ocispec.Descriptor, ok bool) {
	list = slices.DeleteFunc(slices.Clone(list), func(d ocispec.Descriptor) bool {
		return d.Platform != nil && !m.matches(*d.Platform)
	})
	if len(list) == 0 {
		return best, false
	}
	return m.sorted(list)[0], true
}

// first returns the manifest or index of which containerd's CRI computes the size. It does not look
// whether its platform is the node's (LimitManifests in containerd's core/images), and ignores the image
// if a part of it is missing.
func (m matcher) first(list []ocispec.Descriptor) ocispec.Descriptor {
	return m.sorted(slices.Clone(list))[0]
}

// sorted sorts a list in containerd's order: the best platform first, entries without one last. Not
// every order of platforms is transitive, so this is also containerd's algorithm.
func (m matcher) sorted(list []ocispec.Descriptor) []ocispec.Descriptor {
	sort.SliceStable(list, func(i, j int) bool {
		a, b := list[i].Platform, list[j].Platform
		if a == nil || b == nil {
			return a != nil
		}
		return m.Less(onLinux(*a), onLinux(*b))
	})
	return list
}

func missing(arch string, has []ocispec.Platform) error {
	e := &MissingError{Arch: arch}
	for _, p := range has {
		// Build attestations are listed as platform unknown/unknown.
		if p.OS != "unknown" && p.Architecture != "unknown" {
			e.Has = append(e.Has, Format(p))
		}
	}
	slices.Sort(e.Has)
	e.Has = slices.Compact(e.Has)
	return e
}

// Format returns a platform as text that is safe for a terminal: "linux/arm64/v8".
func Format(p ocispec.Platform) string {
	parts := slices.DeleteFunc([]string{p.OS, p.Architecture, p.Variant}, func(part string) bool { return part == "" })
	if len(parts) == 0 {
		return "an empty platform"
	}
	s := strings.Join(parts, "/")
	if len(p.OSFeatures) > 0 { // nodes have none
		s += " with the features " + strings.Join(p.OSFeatures, ",")
	}
	if q := strconv.QuoteToASCII(s); q != `"`+s+`"` {
		return q
	}
	return s
}
