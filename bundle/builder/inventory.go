package builder

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"airlift/images/local"
	"airlift/images/release"
	"airlift/internal/fault"
)

// An inventory is what a bundle will have: what the options select, and what that resolved to so
// far. It requests nothing and writes nothing: the manifest, the lock, the provenance and the
// warnings are computed from it.
type inventory struct {
	Target
	Selection
	base       base
	release    foundRelease
	components components
	named      []string // references of the images that the user, local sources and manifests name
	images     []*image
	objects    objects
	content    siteContent
	signed     *Signatures // nil if no signature is to be verified
}

// wanted lists the catalog's images, followed by the user's images.
func (inv *inventory) wanted(found map[string]*local.Image) (list []*wantedImage) {
	known := map[string]bool{}
	add := func(i release.Image, fixed bool) {
		known[i.Reference] = true
		w := &wantedImage{Image: i, fixed: fixed, local: localImage(found, i.Reference)}
		if w.local == nil && strings.Contains(i.Reference, "@") {
			w.others = digestsOf(found, release.Repository(i.Reference))
		}
		list = append(list, w)
	}
	for _, i := range inv.release.Images {
		add(i, true)
	}
	for _, ref := range inv.named {
		if !known[ref] {
			add(release.Image{Name: ref, Reference: ref}, false)
		}
	}
	return list
}

// localImage returns the image of a local source with this reference. A reference with a digest,
// for example in a pod, may match an image that its source has under a tag.
func localImage(found map[string]*local.Image, reference string) *local.Image {
	if img := found[reference]; img != nil {
		return img
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if img, ok := found[name].As(reference); ok {
			return img
		}
	}
	return nil
}

// digestsOf lists the images of local sources in a repository, with their digests.
func digestsOf(found map[string]*local.Image, repository string) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if release.Repository(name) == repository {
			list = append(list, name+" with the digest "+found[name].Target.Digest)
		}
	}
	return strings.Join(list, ", ")
}

// hosts lists the sites of the catalog, or the sites that an additional bundle needs.
func (inv *inventory) hosts() []string {
	if inv.additional() {
		hosts := []string{"dl.k8s.io"} // for the newest version
		for _, reference := range inv.named {
			host, _, _ := strings.Cut(reference, "/")
			if !slices.Contains(hosts, host) {
				hosts = append(hosts, host)
			}
		}
		return hosts
	}
	hosts := []string{"dl.k8s.io", "github.com", "registry.k8s.io"}
	if inv.CNI == release.Flannel {
		hosts = append(hosts, "ghcr.io")
	}
	return hosts
}

// describe returns a line about what the bundle will have, with this number of images.
func (inv *inventory) describe(wanted int) (string, error) {
	version := inv.release.Version
	if !inv.additional() {
		return fmt.Sprintf("Kubernetes %s for linux/%s, pod network %s: %d components, %d images",
			version, inv.Arch, inv.CNI, len(inv.components.binaries), wanted), nil
	}
	if wanted+len(inv.content.manifests) == 0 {
		return "", fault.New(fault.Usage, "the bundle would be empty: there is nothing of --only %s", strings.Join(inv.Only, ",")).Hint("add images with --image or --images-from, or list manifests in the file of --file")
	}
	return fmt.Sprintf("additional bundle for Kubernetes %s on linux/%s: %s, %s",
		version, inv.Arch, plural(wanted, "image"), plural(len(inv.content.manifests), "manifest")), nil
}
