package bundle

import (
	"fmt"
	"slices"
)

// unused is the size of a layer in validator.inBase that no image has used yet.
const unused = -1

// ContentKinds are the values of the field Only, in their order.
func ContentKinds() []string { return []string{OnlyImages, OnlyManifests} }

// checkAdditional checks what an additional bundle may have, and reads the layers of its base.
func (v validator) checkAdditional(m *Manifest) error {
	if !m.Additional() {
		if m.Base != nil {
			return fmt.Errorf("base is only for bundles with the field only")
		}
		return nil
	}
	ordered := slices.DeleteFunc(ContentKinds(), func(kind string) bool { return !slices.Contains(m.Only, kind) })
	if !slices.Equal(m.Only, ordered) {
		return fmt.Errorf("only %q is not a list of %q in this order", m.Only, ContentKinds())
	}
	switch {
	case m.CNI != "none":
		return fmt.Errorf("a bundle of only %q has the pod network %q", m.Only, m.CNI)
	case m.NearestKnown != "":
		return fmt.Errorf("a bundle of only %q has nearestKnown", m.Only)
	case len(m.Components) > 0:
		return fmt.Errorf("a bundle of only %q has components", m.Only)
	case len(m.Files) > 0:
		return fmt.Errorf("a bundle of only %q has files", m.Only)
	case len(m.Units) > 0:
		return fmt.Errorf("a bundle of only %q has units", m.Only)
	case len(m.Images) > 0 && !slices.Contains(m.Only, OnlyImages):
		return fmt.Errorf("a bundle of only %q has images", m.Only)
	case len(m.Manifests) > 0 && !slices.Contains(m.Only, OnlyManifests):
		return fmt.Errorf("a bundle of only %q has manifests", m.Only)
	}
	for _, i := range m.Images {
		if i.Name != i.Reference {
			return fmt.Errorf("image %q: the name of an image in an additional bundle is its reference", i.Name)
		}
	}
	if m.Base == nil {
		return nil
	}
	if !hex64.MatchString(m.Base.ManifestSHA256) {
		return fmt.Errorf("base: manifestSHA256 %q is not 64 lower-case hex digits", m.Base.ManifestSHA256)
	}
	// Together, to keep the sum of all sizes within an int64.
	if n := len(m.Base.Layers) + len(m.Entries); n > maxEntries {
		return fmt.Errorf("base: %d layers and entries are more than the %d allowed", n, maxEntries)
	}
	last := ""
	for _, diffID := range m.Base.Layers {
		if err := checkDigest("base", diffID); err != nil {
			return err
		}
		if diffID <= last {
			return fmt.Errorf("base: layer %s is listed twice or out of order", diffID)
		}
		if _, ok := v.entries[BlobName(diffID)]; ok {
			return fmt.Errorf("base: layer %s is in this bundle", diffID)
		}
		last = diffID
		v.inBase[diffID] = unused
	}
	return nil
}

// useLayer checks that the layer is in the bundle, or else in its base.
func (v validator) useLayer(what string, l Layer) error {
	size, ok := v.inBase[l.DiffID]
	switch {
	case !ok:
		return v.useBlob(what, l.DiffID, l.Size)
	case l.Size < 0 || l.Size > MaxEntry:
		return fmt.Errorf("%s: size %d is not between 0 and %d", what, l.Size, int64(MaxEntry))
	case size != unused && size != l.Size:
		return fmt.Errorf("%s: size is %d, another image's is %d", what, l.Size, size)
	}
	v.inBase[l.DiffID] = l.Size
	return nil
}

// checkBase checks that an image uses each layer of the base. It follows checkImages.
func (v validator) checkBase(b *Base) error {
	if b == nil {
		return nil
	}
	for _, diffID := range b.Layers {
		if v.inBase[diffID] == unused {
			return fmt.Errorf("base: no image has the layer %s", diffID)
		}
	}
	return nil
}
