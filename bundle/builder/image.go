package builder

import (
	"strings"

	"airlift/bundle"
	"airlift/images"
	"airlift/images/local"
	"airlift/images/registry"
)

// A wantedImage is an image that the bundle will have, before it is resolved.
type wantedImage struct {
	images.Image
	fixed  bool         // of the catalog
	local  *local.Image // nil if it is in a registry
	digest string       // that it must have; empty if its registry resolves the reference
	locked bool         // digest is from the lock
}

// An image is a resolved image. Exactly one of registry and local is not nil.
type image struct {
	*bundle.Image
	registry *registry.Image
	local    *local.Image
	pinned   bool // the user required its digest
	locked   bool // the lock has its digest
	signed   signed
}

// compressed lists the layers that have to be downloaded, with their sizes.
func (i *image) compressed() []registry.Layer {
	if i.registry == nil {
		return nil
	}
	return i.registry.Compressed()
}

// replaces reports whether the image of a local source has a name of the catalog, and no digest that the
// user required.
func (i *image) replaces() bool {
	return i.local != nil && !i.pinned && images.Reserved(i.Reference)
}

// site is where the image comes from.
func (i *image) site() string {
	if i.registry == nil {
		return i.local.Kind
	}
	return i.registry.Site
}

// parseImages separates the user's images: references of those in registries, and local sources.
func parseImages(typed []string) (references []string, sources []local.Spec, err error) {
	for _, s := range typed {
		spec, ok, err := local.Parse(s)
		if err != nil {
			return nil, nil, err
		}
		if ok {
			if err := spec.Check(); err != nil {
				return nil, nil, err
			}
			sources = append(sources, spec)
			continue
		}
		// docker:// is skopeo's name for registries.
		name, err := images.Normalize(strings.TrimPrefix(s, "docker://"))
		if err != nil {
			return nil, nil, err
		}
		references = append(references, name)
	}
	return references, sources, nil
}
