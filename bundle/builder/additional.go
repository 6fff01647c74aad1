package builder

import (
	"slices"
	"strings"

	"airlift/bundle"
	"airlift/images/release"
	"airlift/internal/fault"
)

// An additional bundle is built by the same steps as any other, from a catalog that is empty.

// ParseOnly returns the kinds of content of an additional bundle in the manifest's order.
func ParseOnly(list []string) (only []string, err error) {
	kinds := bundle.ContentKinds()
	for _, kind := range list {
		if !slices.Contains(kinds, kind) {
			return nil, fault.New(fault.Usage, "--only %q: an additional bundle cannot have this", kind).Hint("write " + strings.Join(kinds, ", ") + " or both, separated by a comma")
		}
	}
	return slices.DeleteFunc(kinds, func(kind string) bool { return !slices.Contains(list, kind) }), nil
}

// additional reports whether the bundle has no Kubernetes.
func (t Target) additional() bool { return len(t.Only) > 0 }

// carries reports whether the bundle may have this kind of content.
func (t Target) carries(kind string) bool { return !t.additional() || slices.Contains(t.Only, kind) }

// channel is images.Channel for the bundle's Kubernetes version.
func (t Target) channel() (full, url string, err error) {
	if t.additional() {
		return release.AnyChannel(t.Version)
	}
	return release.Channel(t.Version, t.Versions)
}

// catalogOf returns what the bundle has of this Kubernetes version.
func (t Target) catalogOf(version string) (*release.Catalog, error) {
	if t.additional() {
		return release.Nothing(version, t.Arch)
	}
	return release.For(version, t.Arch, t.CNI, t.Versions)
}

// complete returns the target with Only in the manifest's order and the pod network of an
// additional bundle. It refuses what an additional bundle cannot have.
func (t Target) complete(s Selection) (Target, error) {
	var err error
	if t.Only, err = ParseOnly(t.Only); err != nil {
		return t, err
	}
	if !t.additional() {
		if t.Base != "" {
			return t, fault.New(fault.Usage, "--base is only for additional bundles").Hint("add --only images,manifests, or remove --base")
		}
		return t, nil
	}
	t.CNI = release.NoCNI
	switch {
	case len(s.Site.Files) > 0:
		return t, fault.New(fault.Usage, "%s: an additional bundle cannot have the file %q", s.Site.Files[0].At, s.Site.Files[0].Path).
			Hint("remove it: init and join write files and units, from a bundle without --only")
	case t.Versions != release.Versions{}:
		return t, fault.New(fault.Usage, "an additional bundle has no components").Hint("remove the versions of components, or --only")
	case len(s.Require)+len(s.Without) > 0:
		return t, fault.New(fault.Usage, "an additional bundle has no components").Hint("remove --require and --without, or --only")
	case !t.carries(bundle.OnlyImages) && len(s.Images)+len(s.Site.ImagesFrom) > 0:
		return t, fault.New(fault.Usage, "--only manifests leaves out the images that are listed").Hint("use --only images,manifests, or remove the images")
	}
	return t, nil
}
