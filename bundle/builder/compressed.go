package builder

import (
	"airlift/bundle"
)

// addKept adds the compressed layers that no encoder gives, if they are wanted. They are the
// last entries, because no host reads them. Layers of the base were not downloaded.
func (inv *inventory) addKept(m *bundle.Manifest) {
	if !inv.KeepCompressed {
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
			if inv.base.has(l.DiffID) {
				continue
			}
			added[bundle.BlobName(c.Digest)] = true
			m.Entries = append(m.Entries, blob(c.Digest, c.Size))
		}
	}
}
