package builder

import (
	"fmt"
	"os"

	"airlift/bundle"
	"airlift/images/release"
	"airlift/internal/fault"
)

// A base is the bundle whose layers an additional bundle leaves out. The zero value has none.
type base struct {
	path     string
	manifest *bundle.Manifest
	sha256   string           // of the manifest
	layers   map[string]int64 // sizes of the layers that all nodes have, by diffID
	// compressed describes the compressed blobs of these layers, by digest.
	compressed map[string]*bundle.Compressed
}

// readBase reads the manifest of the base of a target. output is the file to write.
func readBase(t Target, output string) (b base, err error) {
	if t.Base == "" {
		return base{}, nil
	}
	f, err := bundle.OpenWhole(t.Base)
	if err != nil {
		return base{}, fmt.Errorf("reading the base: %w", err)
	}
	defer f.Close()
	m, err := f.Manifest()
	if err != nil {
		return base{}, fmt.Errorf("reading the base: %w", err)
	}
	switch {
	case m.Additional():
		return base{}, fault.New(fault.Usage, "the base %q is itself an additional bundle", t.Base).Hint("use the bundle that the nodes were installed from")
	case m.Platform != "linux/"+t.Arch:
		return base{}, fault.New(fault.Usage, "the base %q is for %s, not for linux/%s", t.Base, m.Platform, t.Arch).Hint("use a base for linux/" + t.Arch + ", or another --arch")
	}
	if i, err := os.Stat(output); err == nil {
		if j, err := os.Stat(t.Base); err == nil && os.SameFile(i, j) {
			return base{}, fault.New(fault.Usage, "the output %q is the base", output).Hint("choose another file with --output")
		}
	}
	b = base{path: t.Base, manifest: m, sha256: f.ManifestSHA256(), layers: map[string]int64{}, compressed: map[string]*bundle.Compressed{}}
	for _, i := range b.onEveryNode() {
		for _, l := range i.Layers {
			b.layers[l.DiffID] = l.Size
			if l.Compressed != nil {
				b.compressed[l.Compressed.Digest] = l.Compressed
			}
		}
	}
	return b, nil
}

// has reports whether all nodes have the layer with this diffID.
func (b base) has(diffID string) bool {
	_, ok := b.layers[diffID]
	return ok
}

// onEveryNode lists the base's images that all nodes have. Workers do not import control plane
// images, so a node may have neither these images nor their layers.
func (b base) onEveryNode() (list []bundle.Image) {
	if b.manifest == nil {
		return nil
	}
	for _, i := range b.manifest.Images {
		if i.EveryNode || release.Worker(i.Name) {
			list = append(list, i)
		}
	}
	return list
}

// addImages is the hint for an image that a bundle without images needs.
func (b base) addImages() string {
	if b.path == "" {
		return "add images to --only, or name the bundle that has it with --base"
	}
	return fmt.Sprintf("add images to --only: no image of this name is on every node that %q installs", b.path)
}

// otherVersion warns if own, the Kubernetes version of the manifests, has another minor version
// than the base.
func (b base) otherVersion(own string) []string {
	if b.manifest == nil {
		return nil
	}
	of := b.manifest.KubernetesVersion
	if release.MinorOf(of) == release.MinorOf(own) {
		return nil
	}
	return []string{fmt.Sprintf("the bundle is for Kubernetes %s, but the base installs %s; for that version, use --version %s", own, of, of)}
}
