package builder

import (
	"airlift/bundle"
)

// addKept adds the compressed layers that no encoder gives, if they are wanted. They are the
// last entries, because no host reads them. Layers of the base were not downloaded.
func (b *builder) addKept(m *bundle.Manifest) {
	if !b.KeepCompressed {
		return
	}
	added := map[string]bool{}
	for _, e := range m.Entries {
		added[e.Name] = true
	}
	for _, i := range m.Images {
		for _, l := range i.Layers {
			c := l.Compressed
			if c == nil || c.Encoder != "" || added[bundle.BlobName(c.Digest)] {
				continue
			}
			if _, ok := b.base.layers[l.DiffID]; ok {
				continue
			}
			added[bundle.BlobName(c.Digest)] = true
			m.Entries = append(m.Entries, blob(c.Digest, c.Size))
		}
	}
}
