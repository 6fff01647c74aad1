package builder

import (
	"slices"

	"airlift/bundle/builder/addons"
	"airlift/bundle/builder/manifests"
	"airlift/images/release"
	"airlift/internal/fault"
)

// An add-on is a manifest of the catalog. It takes the same way as the site's own manifests: its
// image is found in its objects, and the check of completeness includes it.

func (s Selection) checkAddOns(t Target) error {
	cni := t.CNI
	if t.additional() {
		cni = release.Flannel // which network the cluster has is not known
	}
	if err := release.CheckAddOns(s.AddOns, cni); err != nil {
		return err
	}
	if t.additional() && slices.Contains(s.AddOns, release.NetworkPolicy) {
		return fault.New(fault.Usage, "the add-on %s needs a bundle that installs nodes", release.NetworkPolicy).
			Hint("remove it, or --only: the preflight checks of init and join find out whether a host's kernel can enforce policies")
	}
	for _, m := range s.Site.Manifests {
		if slices.Contains(s.AddOns, m.Name) {
			return fault.New(fault.Usage, "%s: the manifest %q has the name of an add-on of this bundle", m.At, m.Name).Hint("choose another name for the manifest")
		}
	}
	return nil
}

// addOns returns the manifests of the chosen add-ons for a version of Kubernetes, in the order of
// the catalog.
func (s Selection) addOns(version string) (list []Manifest, err error) {
	if len(s.AddOns) == 0 {
		return nil, nil
	}
	known, err := release.AddOns(version)
	if err != nil {
		return nil, err
	}
	for _, name := range s.AddOns {
		if !slices.ContainsFunc(known, func(a release.AddOn) bool { return a.Name == name }) {
			return nil, fault.New(fault.Usage, "the add-on %s needs Kubernetes %s or later, and this bundle has %s", name, release.AddOnSince(name), version).
				Hint("remove it, or build a bundle of a newer version of Kubernetes")
		}
	}
	for _, a := range known {
		if slices.Contains(s.AddOns, a.Name) {
			list = append(list, Manifest{Name: a.Name, AddOn: &a, At: "--addon " + a.Name})
		}
	}
	return list, nil
}

// readAddOn returns the objects of an add-on.
func readAddOn(a release.AddOn) ([]*manifests.Object, error) {
	text, err := addons.Objects(a)
	if err != nil {
		return nil, err
	}
	return manifests.Decode("add-on "+a.Name, text)
}
