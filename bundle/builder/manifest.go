package builder

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"airlift/bundle"
	"airlift/images/release"
)

// bootOrder is the order in which the first control-plane node needs the entries.
// It lists components, single binaries of a component, and images. All binaries
// precede all images, and the user's images come last.
var bootOrder = []string{
	"runc", "containerd",
	"cni/bridge", "cni/host-local", "cni/portmap", "cni/loopback", // a worker is not Ready without these
	"kubelet", "kubectl", "cni-plugins", "crictl",

	release.Pause, release.Etcd, release.APIServer, release.ControllerManager, release.Scheduler, release.Proxy,
	release.Flannel, release.CoreDNS,
}

// smallOrder is a boot order in which similar entries are neighbours, so binaries and
// images alternate. The kubelet, kubectl and the control plane share much code. A
// reader of the images must then also decompress the binaries.
var smallOrder = []string{
	"runc", "containerd",
	release.Pause, "cni/bridge", "cni/host-local", "cni/portmap", "cni/loopback",
	release.Etcd, "kubelet", release.APIServer, release.ControllerManager, release.Scheduler, release.Proxy,
	"kubectl", release.Flannel, release.CoreDNS,
	"cni-plugins", "crictl",
}

// manifest describes the bundle at a compression level.
func (inv *inventory) manifest(level bundle.Level) (*bundle.Manifest, error) {
	m := &bundle.Manifest{
		FormatVersion:     bundle.FormatVersion,
		Platform:          "linux/" + inv.Arch,
		KubernetesVersion: inv.release.Version,
		NearestKnown:      inv.release.Nearest,
		CNI:               inv.CNI,
		Only:              inv.Only,
	}
	onlyInBase := map[string]bool{} // diffIDs
	added := map[string]bool{}      // names of entries
	order := bootOrder
	if level == bundle.Best {
		order = smallOrder
	}
	add := func(e bundle.Entry) {
		if !added[e.Name] {
			added[e.Name] = true
			m.Entries = append(m.Entries, e)
		}
	}
	addBinary := func(bin *binary) {
		c := bundle.Component{Name: bin.Name, Version: bin.Version, URL: bin.URL, Checksum: "sha256:" + bin.sum, SignedBy: bin.signed.by}
		for _, p := range bin.entries {
			add(p)
			c.Entries = append(c.Entries, p.Name)
		}
		m.Components = append(m.Components, c)
	}
	addImage := func(img *image) {
		// The config precedes the layers, because it lists their diffIDs.
		for _, d := range img.Documents() {
			add(blob(d.Digest, d.Size))
		}
		for _, l := range img.Layers {
			if inv.base.has(l.DiffID) {
				onlyInBase[l.DiffID] = true
			} else {
				add(blob(l.DiffID, l.Size))
			}
		}
		i := *img.Image
		i.SignedBy = img.signed.by
		i.EveryNode = !release.Worker(i.Name) && slices.Contains(inv.named, i.Reference)
		m.Images = append(m.Images, i)
	}
	for _, name := range order {
		for _, bin := range inv.components.binaries {
			if bin.Name == name {
				addBinary(bin)
			}
			for _, p := range bin.entries {
				if p.Name == name {
					add(p)
				}
			}
		}
		for _, img := range inv.images {
			if img.Name == name {
				addImage(img)
			}
		}
	}
	for _, img := range inv.images {
		if !slices.Contains(order, img.Name) {
			addImage(img)
		}
	}
	if inv.base.manifest != nil {
		m.Base = &bundle.Base{ManifestSHA256: inv.base.sha256, Layers: slices.Sorted(maps.Keys(onlyInBase))}
	}
	slices.SortFunc(m.Components, func(x, y bundle.Component) int { return cmp.Compare(x.Name, y.Name) })
	if err := inv.Site.checkBinaries(m.Entries); err != nil {
		return nil, err
	}
	inv.content.describe(m, inv.Site.Units)
	inv.addKept(m)
	return m, m.Validate()
}

func blob(digest string, size int64) bundle.Entry {
	return bundle.Entry{Name: bundle.BlobName(digest), Size: size, SHA256: strings.TrimPrefix(digest, "sha256:")}
}
