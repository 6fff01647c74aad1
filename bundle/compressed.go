package bundle

import (
	"encoding/hex"
	"slices"

	"airlift/bundle/encoder"
)

// Compressed describes upstream's compressed blob of a layer. The image's manifest lists it
// with the same digest and size.
type Compressed struct {
	Digest string `json:"digest"` // "sha256:<hex>"
	Size   int64  `json:"size"`
	// Encoder is the encoder of package encoder that gives exactly this blob. It is empty
	// if none is known to. Then the bundle may have the blob as an entry.
	Encoder string `json:"encoder,omitempty"`
	// Header is the blob's gzip header in lower-case hex. It is empty without Encoder, and
	// for zstd.
	Header string `json:"header,omitempty"`
}

// Recipe returns how to make the blob from the layer, and whether that is known.
func (c *Compressed) Recipe() (encoder.Recipe, bool) {
	if c.Encoder == "" {
		return encoder.Recipe{}, false
	}
	header, err := hex.DecodeString(c.Header)
	return encoder.Recipe{Encoder: c.Encoder, Header: header}, err == nil
}

// KeptBlobs returns the names of the entries that are compressed layers.
func (m *Manifest) KeptBlobs() map[string]bool {
	wanted, kept := map[string]bool{}, map[string]bool{}
	for _, i := range m.Images {
		for _, l := range i.Layers {
			if l.Compressed != nil && l.Compressed.Encoder == "" {
				wanted[BlobName(l.Compressed.Digest)] = true
			}
		}
	}
	for _, e := range m.Entries {
		if wanted[e.Name] {
			kept[e.Name] = true
		}
	}
	return kept
}

// Unservable returns the references of the images, in order, that a registry may not be able to serve from this bundle and its
// base: upstream's blob of a layer is neither kept nor can it be made. The manifest does not tell whether a layer that only the
// base has is uncompressed upstream, and so could be served.
func (m *Manifest) Unservable() (references []string) {
	kept, inBase := m.KeptBlobs(), m.OnlyInBase()
	for _, i := range m.Images {
		if slices.ContainsFunc(i.Layers, func(l Layer) bool {
			if l.Compressed == nil {
				_, missing := inBase[l.DiffID]
				return missing
			}
			_, made := l.Compressed.Recipe()
			return !made && !kept[BlobName(l.Compressed.Digest)]
		}) {
			references = append(references, i.Reference)
		}
	}
	return references
}

// Reproduced counts the compressed layers of all images: layers that an encoder can recreate,
// layers that are kept compressed, and all. Layers that upstream does not compress are not counted.
func (m *Manifest) Reproduced() (reproduced, kept, all int) {
	seen := map[string]bool{}
	entries := m.KeptBlobs()
	for _, i := range m.Images {
		for _, l := range i.Layers {
			if l.Compressed == nil || seen[l.Compressed.Digest] {
				continue
			}
			seen[l.Compressed.Digest] = true
			all++
			switch {
			case l.Compressed.Encoder != "":
				reproduced++
			case entries[BlobName(l.Compressed.Digest)]:
				kept++
			}
		}
	}
	return reproduced, kept, all
}
