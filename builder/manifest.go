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

// newManifest describes the bundle.
func (b *build) newManifest() (*bundle.Manifest, error) {
	m := &bundle.Manifest{
		FormatVersion:     bundle.FormatVersion,
		Platform:          "linux/" + b.Arch,
		KubernetesVersion: b.release.Version,
		NearestKnown:      b.release.Nearest,
		CNI:               b.CNI,
		Only:              b.Only,
	}
	onlyInBase := map[string]bool{} // diffIDs
	added := map[string]bool{}      // names of entries of components and images
	order := bootOrder
	if b.Level == bundle.Best {
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
			if b.base.has(l.DiffID) {
				onlyInBase[l.DiffID] = true
			} else {
				add(blob(l.DiffID, l.Size))
			}
		}
		i := *img.Image
		i.SignedBy = img.signed.by
		i.EveryNode = !release.Worker(i.Name) && slices.Contains(b.named, i.Reference)
		m.Images = append(m.Images, i)
	}
	for _, name := range order {
		for _, bin := range b.binaries {
			if bin.Name == name {
				addBinary(bin)
			}
			for _, p := range bin.entries {
				if p.Name == name {
					add(p)
				}
			}
		}
		for _, img := range b.images {
			if img.Name == name {
				addImage(img)
			}
		}
	}
	for _, img := range b.images {
		if !slices.Contains(order, img.Name) {
			addImage(img)
		}
	}
	if b.Base != "" {
		m.Base = &bundle.Base{ManifestSHA256: b.base.sha256, Layers: slices.Sorted(maps.Keys(onlyInBase))}
	}
	slices.SortFunc(m.Components, func(x, y bundle.Component) int { return cmp.Compare(x.Name, y.Name) })
	if err := b.Site.checkBinaries(m.Entries); err != nil {
		return nil, err
	}
	b.content.describe(m, b.Site.Units)
	b.addKept(m, added)
	return m, m.Validate()
}

func blob(digest string, size int64) bundle.Entry {
	return bundle.Entry{Name: bundle.BlobName(digest), Size: size, SHA256: strings.TrimPrefix(digest, "sha256:")}
}

// addKept adds the compressed layers that no encoder gives, if they are wanted. They are the
// last entries, because no host reads them. Layers of the base were not downloaded.
func (b *build) addKept(m *bundle.Manifest, added map[string]bool) {
	for _, i := range m.Images {
		for _, l := range i.Layers {
			c := l.Compressed
			if !b.KeepCompressed || c == nil || c.Encoder != "" || added[bundle.BlobName(c.Digest)] || b.base.has(l.DiffID) {
				continue
			}
			added[bundle.BlobName(c.Digest)] = true
			m.Entries = append(m.Entries, blob(c.Digest, c.Size))
		}
	}
}
