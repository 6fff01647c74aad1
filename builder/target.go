package builder

import (
	"context"
	"fmt"
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

// channel is release.Channel for the bundle's Kubernetes version.
func (t Target) channel() (full, url string, err error) {
	if t.additional() {
		return release.AnyChannel(t.Version)
	}
	return release.Channel(t.Version, t.Versions)
}

// catalogOf returns what a bundle for an architecture has of this Kubernetes version.
func (t Target) catalogOf(version, arch string) (*release.Catalog, error) {
	if t.additional() {
		return release.Nothing(version, arch)
	}
	return release.For(version, arch, t.CNI, t.Versions)
}

// completeTarget puts Only into the manifest's order and sets the pod network of an
// additional bundle. It refuses what an additional bundle cannot have.
func (b *build) completeTarget() (err error) {
	if b.Only, err = ParseOnly(b.Only); err != nil {
		return err
	}
	if !b.additional() {
		if b.Base != "" {
			return fault.New(fault.Usage, "--base is only for additional bundles").Hint("add --only images,manifests, or remove --base")
		}
		return nil
	}
	b.CNI = release.NoCNI
	switch {
	case len(b.Site.Files) > 0:
		return fault.New(fault.Usage, "%s: an additional bundle cannot have the file %q", b.Site.Files[0].At, b.Site.Files[0].Path).
			Hint("remove it: init and join write files and units, from a bundle without --only")
	case len(b.Site.Packages) > 0:
		return fault.New(fault.Usage, "%s: an additional bundle cannot have packages", b.Site.Packages[0].At).
			Hint("remove them: init, join and the command packages install them, from a bundle without --only")
	case b.Versions != release.Versions{}:
		return fault.New(fault.Usage, "an additional bundle has no components").Hint("remove the versions of components, or --only")
	case len(b.Require)+len(b.Without) > 0:
		return fault.New(fault.Usage, "an additional bundle has no components").Hint("remove --require and --without, or --only")
	case !b.carries(bundle.OnlyImages) && len(b.Images)+len(b.Site.ImagesFrom) > 0:
		return fault.New(fault.Usage, "--only manifests leaves out the images that are listed").Hint("use --only images,manifests, or remove the images")
	}
	return nil
}

// checkVersion refuses a version, an architecture or a pod network that the catalog cannot have.
func (b *build) checkVersion() error {
	full, _, err := b.channel()
	if err == nil {
		err = release.Supported(b.Arch, b.CNI)
	}
	if err == nil && full != "" {
		_, err = b.catalogOf(full, b.Arch)
	}
	return err
}

// findRelease finds the release that Version names: "v1.29.15", or "v1.29" for its newest release.
func (b *build) findRelease(ctx context.Context) error {
	version, channel, err := b.channel()
	if err != nil {
		return err
	}
	switch {
	case channel != "" && b.Lock != nil:
		if version, err = b.lockedVersion(); err != nil {
			return err
		}
	case channel != "":
		text, source, err := b.fetch.Text(ctx, channel)
		if err != nil {
			hint := "give a full version, for example --version " + release.NewestOf(b.Version)
			if last, ok := b.fetch.Recall("newest in " + channel); ok {
				hint = fmt.Sprintf("give a full version; the last known release is --version %s", last)
			}
			return fault.Wrap(fmt.Errorf("finding the newest release of %s: %w", b.Version, err), fault.Failure, hint)
		}
		version, b.release.source = strings.TrimSpace(text), source
	}
	if b.release.Catalog, err = b.catalogOf(version, b.Arch); err != nil && b.release.source.Site != "" {
		return fmt.Errorf("reading %s: %w", channel, err)
	}
	if err != nil || b.release.source.Site == "" {
		return err
	}
	b.Report.Printf("newest release of %s: %s\n", b.Version, version)
	return b.fetch.Remember("newest in "+channel, version)
}

// An add-on is a manifest of the catalog. It takes the same way as the site's own manifests: its
// image is found in its objects, and the check of completeness includes it.

func (b *build) checkAddOns() error {
	cni := b.CNI
	if b.additional() {
		cni = release.Flannel // which network the cluster has is not known
	}
	if err := release.CheckAddOns(b.AddOns, cni); err != nil {
		return err
	}
	if b.additional() && slices.Contains(b.AddOns, release.NetworkPolicy) {
		return fault.New(fault.Usage, "the add-on %s needs a bundle that installs nodes", release.NetworkPolicy).
			Hint("remove it, or --only: the preflight checks of init and join find out whether a host's kernel can enforce policies")
	}
	for _, m := range b.Site.Manifests {
		if slices.Contains(b.AddOns, m.Name) {
			return fault.New(fault.Usage, "%s: the manifest %q has the name of an add-on of this bundle", m.At, m.Name).Hint("choose another name for the manifest")
		}
	}
	return nil
}

// addOns returns the manifests of the chosen add-ons in the order of the catalog.
func (b *build) addOns() (list []Manifest, err error) {
	if len(b.AddOns) == 0 {
		return nil, nil
	}
	known, err := release.AddOns(b.release.Version)
	if err != nil {
		return nil, err
	}
	for _, name := range b.AddOns {
		if !slices.ContainsFunc(known, func(a release.AddOn) bool { return a.Name == name }) {
			return nil, fault.New(fault.Usage, "the add-on %s needs Kubernetes %s or later, and this bundle has %s", name, release.AddOnSince(name), b.release.Version).
				Hint("remove it, or build a bundle of a newer version of Kubernetes")
		}
	}
	for _, a := range known {
		if slices.Contains(b.AddOns, a.Name) {
			list = append(list, Manifest{Name: a.Name, AddOn: &a, At: "--addon " + a.Name})
		}
	}
	return list, nil
}
