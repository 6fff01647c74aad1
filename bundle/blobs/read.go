package blobs

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"airlift/bundle"
	"airlift/internal/fault"
)

// Documents reads the indexes, manifests and configs of images, by digest.
func Documents(ctx context.Context, f *bundle.File, images []bundle.Image) (map[string][]byte, error) {
	wanted := map[string]string{} // digest by entry name
	for _, i := range images {
		for _, d := range i.Documents() {
			wanted[bundle.BlobName(d.Digest)] = d.Digest
		}
	}
	found := map[string][]byte{}
	return found, f.Each(ctx, func(e bundle.Entry) bool { return wanted[e.Name] != "" }, func(e bundle.Entry, content bundle.Content) (err error) {
		found[wanted[e.Name]], err = io.ReadAll(content) // the manifest limits the size
		return err
	})
}

// Layers returns the descriptors of an image's layers in its manifest.
func Layers(f *bundle.File, i bundle.Image, manifest []byte) ([]bundle.Descriptor, error) {
	var m struct{ Layers []bundle.Descriptor }
	err := json.Unmarshal(manifest, &m)
	if err == nil && len(m.Layers) != len(i.Layers) {
		err = fmt.Errorf("it lists %d layers, and the bundle %d", len(m.Layers), len(i.Layers))
	}
	if err != nil {
		return nil, fault.New(fault.Bundle, "%s is inconsistent: image %q: manifest %s: %w", f.Path(), i.Reference, i.Manifest.Digest, err).Hint("run bundle verify")
	}
	return m.Layers, nil
}
