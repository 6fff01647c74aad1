package registry

import (
	"context"
	"fmt"

	"airlift/bundle/fetch"
	"airlift/images/oci"
)

// A Layer is a layer of an image as the registry stores it.
type Layer struct {
	DiffID string // of the uncompressed tar
	Size   int64  // compressed, in bytes
}

// Compressed lists the image's layers, the lowest first.
func (i *Image) Compressed() []Layer {
	var layers []Layer
	for n, d := range i.blobs {
		layers = append(layers, Layer{i.Layers[n].DiffID, d.Size})
	}
	return layers
}

// Cached returns the uncompressed size of a layer, and whether it is in Have or in the cache.
func (c *Client) Cached(ctx context.Context, diffID string) (int64, bool, error) {
	if size, ok := c.Have[diffID]; ok {
		return size, true, nil
	}
	return c.fetch.Cache.Has(ctx, oci.Hex(diffID))
}

// Pull downloads layer n of the image (the lowest is 0) to the cache, unless it is there
// or in Have, and sets its size. The cache has the uncompressed layer, which was compared with its
// diffID. m counts the downloaded bytes.
func (c *Client) Pull(ctx context.Context, img *Image, n int, m fetch.Meter) error {
	layer, d := &img.Layers[n], img.blobs[n]
	already := func() (ok bool, err error) {
		layer.Size, ok, err = c.Cached(ctx, layer.DiffID)
		return ok, err
	}
	if ok, err := already(); ok || err != nil {
		return err
	}
	what := fmt.Sprintf("layer %s of %s", d.Digest, img.Reference)
	dl, err := c.download(ctx, img, d, what, m)
	if err != nil {
		return fmt.Errorf("downloading %s: %w", what, err)
	}
	return c.fetch.Unpack(ctx, dl, already, func(r fetch.Verified) (err error) {
		layer.Size, err = oci.StoreLayer(ctx, c.fetch.Cache, r, layer.DiffID, d.Size, what, dl.URL)
		return err
	})
}
