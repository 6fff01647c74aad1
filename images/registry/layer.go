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
)

// A Layer names one layer of an image by what the registry has.
type Layer struct {
	DiffID string // of the uncompressed tar
	Size   int64  // in bytes, as the registry has it: compressed
}

// Compressed lists the image's layers from the bottom up.
func (i *Image) Compressed() []Layer {
	var layers []Layer
	for n, d := range i.blobs {
		layers = append(layers, Layer{i.Layers[n].DiffID, d.Size})
	}
	return layers
}

// Cached returns the uncompressed size of a layer, and whether the cache has it.
func (c *Client) Cached(ctx context.Context, diffID string) (int64, bool, error) {
	return c.fetch.Cache.Has(ctx, hexOf(diffID))
}

// Pull brings the image's layer number n, counted from the bottom, into the
// cache, unless it is there, and fills in its size. The layer is kept
// uncompressed, checked against its diffID; m sees the bytes as they travel.
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

// maxWindow bounds the memory for a layer in zstd: the most that stock "zstd -d"
// takes.
const maxWindow = 128 << 20

// decompress returns the tar in a layer. Its first bytes tell how it is
// compressed; media types do not always tell the truth.
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
		z, err := zstd.NewReader(b, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, err
		}
		return z.IOReadCloser(), nil
	}
	return io.NopCloser(b), nil
}
