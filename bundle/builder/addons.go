package builder

import (
	"slices"

	"airlift/bundle/addons"
	"airlift/bundle/manifests"
	"airlift/fault"
	"airlift/images"
)

// An add-on is a manifest of the catalog. It takes the same way as the site's own manifests: its
// image is found in its objects, and the check of completeness includes it.

// checkAddOns checks the add-ons that the user chose.
func (b *builder) checkAddOns() error {
	cni := b.CNI
	if b.additional() {
		cni = images.Flannel // which network the cluster has is not known
	}
	if err := images.CheckAddOns(b.AddOns, cni); err != nil {
		return err
	}
	if b.additional() && slices.Contains(b.AddOns, images.NetworkPolicy) {
		return fault.New(fault.Usage, "remove it, or --only: the preflight checks of init and join find out whether a host's kernel can enforce policies",
			"the add-on %s needs a bundle that installs nodes", images.NetworkPolicy)
	}
	for _, m := range b.Site.Manifests {
		if slices.Contains(b.AddOns, m.Name) {
			return fault.New(fault.Usage, "choose another name for the manifest", "%s: the manifest %q has the name of an add-on of this bundle", m.At, m.Name)
		}
	}
	return nil
}

// addOns returns the manifests of the chosen add-ons, in the order of the catalog.
func (b *builder) addOns() (list []Manifest, err error) {
	if len(b.AddOns) == 0 {
		return nil, nil
	}
	known, err := images.AddOns(b.catalog.Version)
	if err != nil {
		return nil, err
	}
	for _, name := range b.AddOns {
		if !slices.ContainsFunc(known, func(a images.AddOn) bool { return a.Name == name }) {
			return nil, fault.New(fault.Usage, "remove it, or build a bundle of a newer version of Kubernetes",
				"the add-on %s needs Kubernetes %s or later, and this bundle has %s", name, images.AddOnSince(name), b.catalog.Version)
		}
	}
	for _, a := range known {
		if slices.Contains(b.AddOns, a.Name) {
			list = append(list, Manifest{Name: a.Name, AddOn: &a, At: "--addon " + a.Name})
		}
	}
	return list, nil
}

// readAddOn returns the objects of an add-on.
func readAddOn(a images.AddOn) ([]*manifests.Object, error) {
	text, err := addons.Objects(a)
	if err != nil {
		return nil, err
	}
	return manifests.Decode("add-on "+a.Name, text)
}
