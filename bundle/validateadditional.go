package bundle

import (
	"fmt"
	"slices"
)

// checkAdditional checks what an additional bundle may have, and reads the layers of its base.
func (v validator) checkAdditional(m *Manifest) error {
	if !m.Additional() {
		if m.Base != nil {
			return fmt.Errorf("base is only for bundles with only")
		}
		return nil
	}
	known := []string{OnlyImages, OnlyManifests}
	if !slices.IsSortedFunc(m.Only, func(a, b string) int { return slices.Index(known, a) - slices.Index(known, b) }) ||
		len(slices.Compact(slices.Clone(m.Only))) < len(m.Only) || slices.ContainsFunc(m.Only, func(s string) bool { return !slices.Contains(known, s) }) {
		return fmt.Errorf("only %q is not a sorted list of %q", m.Only, known)
	}
	switch {
	case m.CNI != "none" || m.NearestKnown != "" || len(m.Components) > 0 || len(m.Files) > 0 || len(m.Units) > 0:
		return fmt.Errorf("a bundle of only %q has other content", m.Only)
	case len(m.Images) > 0 && !slices.Contains(m.Only, OnlyImages):
		return fmt.Errorf("a bundle of only %q has images", m.Only)
	case len(m.Manifests) > 0 && !slices.Contains(m.Only, OnlyManifests):
		return fmt.Errorf("a bundle of only %q has manifests", m.Only)
	}
	for _, i := range m.Images {
		if i.Name != i.Reference {
			return fmt.Errorf("image %q: images of Kubernetes are not for additional bundles", i.Name)
		}
	}
	if m.Base == nil {
		return nil
	}
	if !hex64.MatchString(m.Base.ManifestSHA256) {
		return fmt.Errorf("base: manifestSHA256 %q is not 64 lower-case hex digits", m.Base.ManifestSHA256)
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
		v.inBase[diffID] = false
	}
	return nil
}

// checkBase checks that an image uses each layer of the base. It follows checkImages.
func (v validator) checkBase(b *Base) error {
	if b == nil {
		return nil
	}
	for _, diffID := range b.Layers {
		if !v.inBase[diffID] {
			return fmt.Errorf("base: no image has the layer %s", diffID)
		}
	}
	return nil
}
