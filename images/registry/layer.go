package registry

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"airlift/bundle/fetch"
	"airlift/bundle/head"
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

// Cached returns the uncompressed size of a layer, and whether it is in the cache.
func (c *Client) Cached(ctx context.Context, diffID string) (int64, bool, error) {
	return c.fetch.Cache.Has(ctx, hexOf(diffID))
}

// Pull downloads layer n of the image (the lowest is 0) to the cache, unless it is there,
// and sets its size. The cache has the uncompressed layer, which was compared with its
// diffID. m counts the downloaded bytes.
func (c *Client) Pull(ctx context.Context, img *Image, n int, m fetch.Meter) error {
	layer, d := &img.Layers[n], img.blobs[n]
	want := hexOf(layer.DiffID)
	already := func() (ok bool, err error) {
		layer.Size, ok, err = c.fetch.Cache.Has(ctx, want)
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
	return c.fetch.Unpack(ctx, dl, already, func(r fetch.Verified) error {
		tar, err := decompress(r)
		if err != nil {
			return fmt.Errorf("decompressing %s: %w", what, err)
		}
		defer tar.Close()
		limited := fetch.LimitUnpacked(tar, "unpacked "+what, d.Size)
		_, layer.Size, err = c.fetch.Cache.Put(ctx, limited, want)
		if mismatch := (*fetch.MismatchError)(nil); errors.As(err, &mismatch) {
			mismatch.Name, mismatch.URL = "uncompressed "+what, dl.URL
		}
		if err != nil {
			return fmt.Errorf("decompressing %s: %w", what, err)
		}
		return nil
	})
}

// decompress returns the tar of a layer. It detects the compression from the first bytes,
// because media types may be wrong.
func decompress(r io.Reader) (io.ReadCloser, error) {
	b := bufio.NewReaderSize(r, 1<<20)
	magic, err := b.Peek(4)
	if err != nil && err != io.EOF {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		return gzip.NewReader(b)
	case bytes.HasPrefix(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(b, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(head.MaxWindow))
		if err != nil {
			return nil, err
		}
		return z.IOReadCloser(), nil
	}
	return io.NopCloser(b), nil
}
