package builder

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"airlift/bundle"
	"airlift/images/fetch"
	"airlift/images/local"
	"airlift/images/registry"
	"airlift/images/release"
)

// A wantedImage is an image that the bundle will have, before it is resolved.
type wantedImage struct {
	release.Image
	fixed  bool         // of the catalog
	local  *local.Image // nil if it is in a registry
	others string       // digests of local images of the same repository, if local is nil and the reference has a digest
	digest string       // that it must have; empty if its registry resolves the reference
	locked bool         // digest is from the lock
}

// explain adds to an error of the registry that local sources have other images of the repository. An
// archive without a manifest does not have the digest of the registry.
func (w *wantedImage) explain(err error) error {
	if err == nil || w.others == "" {
		return err
	}
	why := "the local sources have " + w.others
	if m := (*fetch.MissingError)(nil); errors.As(err, &m) {
		return &fetch.MissingError{URL: m.URL, Why: cmp.Or(m.Why, "does not exist") + "; " + why}
	}
	return fmt.Errorf("%w; %s", err, why)
}

// An image is a resolved image. Either registry or local is set.
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
	return i.local != nil && !i.pinned && release.Reserved(i.Reference)
}

// site is where the image comes from.
func (i *image) site() string {
	if i.registry == nil {
		return i.local.Kind
	}
	return i.registry.Site
}

// parseImages separates the user's images into references to registries, and local sources.
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
		name, err := release.Normalize(strings.TrimPrefix(s, "docker://"))
		if err != nil {
			return nil, nil, err
		}
		references = append(references, name)
	}
	return references, sources, nil
}
