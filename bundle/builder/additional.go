package builder

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"airlift/bundle"
	"airlift/fault"
	"airlift/images"
)

// An additional bundle is built by the same steps as any other, from a catalog that is empty.

// ParseOnly returns the kinds of content of an additional bundle in the manifest's order.
func ParseOnly(list []string) (only []string, err error) {
	kinds := bundle.ContentKinds()
	for _, kind := range list {
		if !slices.Contains(kinds, kind) {
			return nil, fault.New(fault.Usage, "write "+strings.Join(kinds, ", ")+" or both, separated by a comma", "--only %q: an additional bundle cannot have this", kind)
		}
	}
	return slices.DeleteFunc(kinds, func(kind string) bool { return !slices.Contains(list, kind) }), nil
}

// additional reports whether the bundle has no Kubernetes.
func (b *builder) additional() bool { return len(b.Only) > 0 }

// carries reports whether the bundle may have this kind of content.
func (b *builder) carries(kind string) bool { return !b.additional() || slices.Contains(b.Only, kind) }

// channel is images.Channel for the bundle's Kubernetes version.
func (b *builder) channel() (full, url string, err error) {
	if b.additional() {
		return images.Release(b.Version)
	}
	return images.Channel(b.Version, b.Versions)
}

// catalogOf returns what the bundle has of this Kubernetes version.
func (b *builder) catalogOf(version string) (*images.Catalog, error) {
	if b.additional() {
		return images.Nothing(version, b.Arch)
	}
	return images.For(version, b.Arch, b.CNI, b.Versions)
}

// checkOnly checks the options of an additional bundle.
func (b *builder) checkOnly() (err error) {
	if b.Only, err = ParseOnly(b.Only); err != nil {
		return err
	}
	if !b.additional() {
		if b.Base != "" {
			return fault.New(fault.Usage, "add --only images,manifests, or remove --base", "--base is only for additional bundles")
		}
		return nil
	}
	b.CNI = images.NoCNI
	switch {
	case len(b.Site.Files) > 0:
		return fault.New(fault.Usage, "remove it: init and join write files and units, from a bundle without --only",
			"%s: an additional bundle cannot have the file %q", b.Site.Files[0].At, b.Site.Files[0].Path)
	case b.Versions != images.Versions{}:
		return fault.New(fault.Usage, "remove the versions of components, or --only", "an additional bundle has no components")
	case len(b.Require)+len(b.Without) > 0:
		return fault.New(fault.Usage, "remove --require and --without, or --only", "an additional bundle has no components")
	case !b.carries(bundle.OnlyImages) && len(b.Images)+len(b.Site.ImagesFrom) > 0:
		return fault.New(fault.Usage, "use --only images,manifests, or remove the images", "--only manifests leaves out the images that are listed")
	}
	return nil
}

// A base is the bundle whose layers an additional bundle leaves out. The zero value has none.
type base struct {
	manifest *bundle.Manifest
	sha256   string           // of the manifest
	layers   map[string]int64 // sizes of the layers that all nodes have, by diffID
	// compressed describes the compressed blobs of these layers, by digest.
	compressed map[string]*bundle.Compressed
}

// readBase reads the manifest of the base.
func (b *builder) readBase() error {
	if b.Base == "" {
		return nil
	}
	f, err := bundle.Open(b.Base)
	if err != nil {
		return fmt.Errorf("reading the base: %w", err)
	}
	defer f.Close()
	m, err := f.Manifest()
	if err != nil {
		return fmt.Errorf("reading the base: %w", err)
	}
	switch {
	case m.Additional():
		return fault.New(fault.Usage, "use the bundle that the nodes were installed from", "the base %q is itself an additional bundle", b.Base)
	case m.Platform != "linux/"+b.Arch:
		return fault.New(fault.Usage, "use a base for linux/"+b.Arch+", or another --arch", "the base %q is for %s, not for linux/%s", b.Base, m.Platform, b.Arch)
	}
	if i, err := os.Stat(b.Output); err == nil {
		if j, err := os.Stat(b.Base); err == nil && os.SameFile(i, j) {
			return fault.New(fault.Usage, "choose another file with --output", "the output %q is the base", b.Output)
		}
	}
	b.base = base{manifest: m, sha256: f.ManifestSHA256(), layers: map[string]int64{}, compressed: map[string]*bundle.Compressed{}}
	for _, i := range b.base.onEveryNode() {
		for _, l := range i.Layers {
			b.base.layers[l.DiffID] = l.Size
			if l.Compressed != nil {
				b.base.compressed[l.Compressed.Digest] = l.Compressed
			}
		}
	}
	return nil
}

// onEveryNode lists the base's images that all nodes have. Workers do not import those of a
// control plane, so neither these images nor their layers can be expected on a node.
func (s base) onEveryNode() (list []bundle.Image) {
	if s.manifest == nil {
		return nil
	}
	for _, i := range s.manifest.Images {
		if i.EveryNode || images.Worker(i.Name) {
			list = append(list, i)
		}
	}
	return list
}

// addImages is the hint for an image that a bundle without images needs.
func (b *builder) addImages() string {
	if b.Base == "" {
		return "add images to --only, or name the bundle that has it with --base"
	}
	return fmt.Sprintf("add images to --only: no image of this name is on every node that %q installs", b.Base)
}

// otherVersion warns if the manifests are for another minor version than that of the base.
func (b *builder) otherVersion() []string {
	if b.base.manifest == nil {
		return nil
	}
	of, own := b.base.manifest.KubernetesVersion, b.catalog.Version
	if images.MinorOf(of) == images.MinorOf(own) {
		return nil
	}
	return []string{fmt.Sprintf("the bundle is for Kubernetes %s, but the base installs %s; for that version, use --version %s", own, of, of)}
}

// describeContent prints what the bundle will have.
func (b *builder) describeContent(wanted []images.Image) error {
	if !b.additional() {
		b.Progress.Printf("Kubernetes %s for linux/%s, pod network %s: %d components, %d images\n",
			b.catalog.Version, b.Arch, b.CNI, len(b.binaries), len(wanted))
		return nil
	}
	if len(wanted)+len(b.content.manifests) == 0 {
		return fault.New(fault.Usage, "add images with --image or --images-from, or list manifests in the file of --file", "the bundle would be empty: there is nothing of --only %s", strings.Join(b.Only, ","))
	}
	b.Progress.Printf("additional bundle for Kubernetes %s on linux/%s: %s, %s\n",
		b.catalog.Version, b.Arch, plural(len(wanted), "image"), plural(len(b.content.manifests), "manifest"))
	return nil
}
