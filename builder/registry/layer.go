package registry

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/google/go-containerregistry/pkg/name"

	"airlift/builder/fetch"
	"airlift/builder/oci"
	"airlift/bundle"
)

// A Layer is a layer of an image as the registry stores it.
type Layer struct {
	DiffID string // of the uncompressed tar
	Digest string // of the blob
	Size   int64  // of the blob, in bytes
}

// Compressed lists the image's layers, the lowest first.
func (i *Image) Compressed() []Layer {
	var layers []Layer
	for n, d := range i.blobs {
		layers = append(layers, Layer{i.Layers[n].DiffID, d.Digest.String(), d.Size})
	}
	return layers
}

// Cached returns the uncompressed size of a layer, and whether it needs no download: it is in
// Have, or the cache has it and the description of its compressed blob.
func (c *Client) Cached(ctx context.Context, l Layer) (int64, bool, error) {
	size, _, ok, err := c.cached(ctx, l)
	return size, ok, err
}

func (c *Client) cached(ctx context.Context, l Layer) (size int64, compressed *bundle.Compressed, ok bool, err error) {
	if size, ok := c.Have[l.DiffID]; ok {
		return size, c.HaveCompressed[l.Digest], true, nil
	}
	if size, ok, err = c.fetch.Cache.Has(ctx, oci.Hex(l.DiffID)); !ok || err != nil {
		return size, nil, false, err
	}
	compressed, ok, err = oci.RecallCompressed(ctx, c.fetch.Cache, l.DiffID, l.Digest, c.Keep)
	return size, compressed, ok, err
}

// Pull downloads layer n of the image (the lowest is 0) to the cache, unless it is there
// or in Have, and sets its size and the description of its compressed blob. The cache has the
// uncompressed layer, which was compared with its diffID. m counts the downloaded bytes.
func (c *Client) Pull(ctx context.Context, img *Image, n int, m fetch.Meter) error {
	layer, d := &img.Layers[n], img.blobs[n]
	l := img.Compressed()[n]
	already := func() (ok bool, err error) {
		layer.Size, layer.Compressed, ok, err = c.cached(ctx, l)
		return ok, err
	}
	if ok, err := already(); ok || err != nil {
		return err
	}
	what := fmt.Sprintf("layer %s of %s", d.Digest, img.Reference)
	dl, err := c.download(ctx, img.repo, d, what, m)
	if err != nil {
		return fmt.Errorf("downloading %s: %w", what, err)
	}
	err = c.fetch.Unpack(ctx, dl, already, func(r fetch.Verified) (err error) {
		if layer.Size, err = oci.StoreLayer(ctx, c.fetch.Cache, r, layer.DiffID, d.Size, what, dl.URL); err != nil {
			return err
		}
		open := func() (io.ReadCloser, error) { return io.NopCloser(io.NewSectionReader(r, 0, r.Size)), nil }
		if layer.Compressed, err = oci.DescribeCompressed(ctx, c.fetch.Cache, open, layer.DiffID, l.Digest, r.Size, c.Keep); err != nil {
			return fmt.Errorf("comparing %s with the output of encoders: %w", what, err)
		}
		return nil
	})
	return c.explainBlob(img.repo, img.Reference, err)
}

// explainBlob is explainAt for an error of a download, which may also be about its content.
func (c *Client) explainBlob(repo name.Repository, what string, err error) error {
	if status := (*fetch.StatusError)(nil); errors.As(err, &status) {
		return c.explainAt(repo, what, err)
	}
	return err
}
