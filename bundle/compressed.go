package bundle

import (
	"encoding/hex"
	"fmt"

	"airlift/images/encoder"
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

// checkCompressed checks the description of a layer's compressed blob.
func (v validator) checkCompressed(what string, l Layer) error {
	c := l.Compressed
	if c == nil {
		return nil
	}
	if err := checkDigest(what+": compressed", c.Digest); err != nil {
		return err
	}
	if c.Digest == l.DiffID {
		return fmt.Errorf("%s: compressed has the digest of the layer", what)
	}
	if c.Size <= 0 || c.Size > MaxEntry {
		return fmt.Errorf("%s: compressed: size %d is not between 1 and %d", what, c.Size, int64(MaxEntry))
	}
	if other, ok := v.compressed[c.Digest]; ok && other != compressedLayer(l) {
		return fmt.Errorf("%s: compressed %s has two descriptions", what, c.Digest)
	}
	v.compressed[c.Digest] = compressedLayer(l)
	e, kept := v.entries[BlobName(c.Digest)]
	switch {
	case c.Encoder == "" && c.Header != "":
		return fmt.Errorf("%s: compressed has a header and no encoder", what)
	case c.Encoder == "" && kept && e.Size != c.Size:
		return fmt.Errorf("%s: compressed: size is %d, the entry's is %d", what, c.Size, e.Size)
	case c.Encoder == "":
		v.used[e.Name] = true // of no entry, if it is not kept
		return nil
	case !encoder.Known(c.Encoder):
		return fmt.Errorf("%s: compressed: the encoder %q is not known", what, c.Encoder)
	case !encoder.HasHeader(c.Encoder) && c.Header != "":
		return fmt.Errorf("%s: compressed: %q has a header", what, c.Encoder)
	case !encoder.HasHeader(c.Encoder):
		return nil
	}
	header, err := hex.DecodeString(c.Header)
	if err == nil && hex.EncodeToString(header) != c.Header {
		err = fmt.Errorf("%q is not in lower case", c.Header)
	}
	if err == nil {
		err = encoder.CheckHeader(header)
	}
	if err != nil {
		return fmt.Errorf("%s: compressed: header: %w", what, err)
	}
	return nil
}

// A described is a compressed blob with the layer that it contains.
type described struct {
	Compressed
	diffID string
}

func compressedLayer(l Layer) described { return described{*l.Compressed, l.DiffID} }

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
