package builder

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"airlift/builder/apirules"
	"airlift/builder/manifests"
	"airlift/bundle"
	"airlift/images/release"
	"airlift/internal/fault"
)

// A base is the bundle whose layers an additional bundle leaves out. The zero value has none.
type base struct {
	*bundle.Manifest        // nil without a base
	sha256           string // of the manifest
	// images are the images that all nodes have. Workers do not import control plane images, so a node may
	// have neither these images nor their layers.
	images []bundle.Image
	layers map[string]int64 // sizes of the layers that all nodes have, by diffID
	// compressed describes the compressed blobs of these layers, by digest.
	compressed map[string]*bundle.Compressed
}

// readBase reads the manifest of the base.
func (b *build) readBase() error {
	if b.Base == "" {
		return nil
	}
	f, err := bundle.OpenWhole(b.Base)
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
		return fault.New(fault.Usage, "the base %q is itself an additional bundle", b.Base).Hint("use the bundle that the nodes were installed from")
	case m.Platform != "linux/"+b.Arch:
		return fault.New(fault.Usage, "the base %q is for %s, not for linux/%s", b.Base, m.Platform, b.Arch).Hint("use a base for linux/" + b.Arch + ", or another --arch")
	}
	if i, err := os.Stat(b.Output); err == nil {
		if j, err := os.Stat(b.Base); err == nil && os.SameFile(i, j) {
			return fault.New(fault.Usage, "the output %q is the base", b.Output).Hint("choose another file with --out")
		}
	}
	b.base = base{Manifest: m, sha256: f.ManifestSHA256(), layers: map[string]int64{}, compressed: map[string]*bundle.Compressed{}}
	for _, i := range m.Images {
		if !i.EveryNode && !release.Worker(i.Name) {
			continue
		}
		b.base.images = append(b.base.images, i)
		for _, l := range i.Layers {
			b.base.layers[l.DiffID] = l.Size
			if l.Compressed != nil {
				b.base.compressed[l.Compressed.Digest] = l.Compressed
			}
		}
	}
	return nil
}

// has reports whether all nodes have the layer with this diffID.
func (b base) has(diffID string) bool {
	_, ok := b.layers[diffID]
	return ok
}

// otherVersion warns if the manifests are for another minor version than the base's.
func (b *build) otherVersion() []string {
	own := b.release.Version
	if b.Base == "" || release.MinorOf(b.base.KubernetesVersion) == release.MinorOf(own) {
		return nil
	}
	of := b.base.KubernetesVersion
	return []string{fmt.Sprintf("the bundle is for Kubernetes %s, but the base installs %s; for that version, use --version %s", own, of, of)}
}

// baseObjects returns the objects in the base's manifests. An additional bundle may use them, as if earlier
// manifests had them.
func (b *build) baseObjects(ctx context.Context) (all []apirules.Object, err error) {
	if b.Base == "" || len(b.base.Manifests) == 0 {
		return nil, nil
	}
	f, err := bundle.OpenWhole(b.Base)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if f.ManifestSHA256() != b.base.sha256 {
		return nil, fault.New(fault.Failure, "%q changed while the bundle was built", b.Base).Hint("run the command again")
	}
	isManifest := func(e bundle.Entry) bool { return strings.HasPrefix(e.Name, bundle.ManifestDir) }
	err = f.Each(ctx, isManifest, func(e bundle.Entry, content bundle.Content) error {
		text, err := io.ReadAll(content) // at most bundle.MaxManifest
		if err != nil {
			return err
		}
		objects, err := manifests.Decode(e.Name, text)
		if err != nil {
			return fmt.Errorf("%s: %w", b.Base, err)
		}
		i := slices.IndexFunc(b.base.Manifests, func(m bundle.SiteManifest) bool { return m.Entry() == e.Name })
		for _, o := range objects {
			all = append(all, apirules.Object{Object: o, Default: b.base.Manifests[i].Namespace})
		}
		return nil
	})
	return all, err
}
