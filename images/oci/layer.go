package oci

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

// StoreLayer decompresses a layer of size compressed bytes to the cache, compares it with
// its diffID, and returns its uncompressed size. what and from name the layer and its
// source in messages.
func StoreLayer(ctx context.Context, cache *fetch.Cache, r io.Reader, diffID string, size int64, what, from string) (int64, error) {
	tar, err := Decompress(r)
	if err != nil {
		return 0, fmt.Errorf("decompressing %s: %w", what, err)
	}
	defer tar.Close()
	limited := fetch.LimitUnpacked(tar, "unpacked "+what, size)
	_, uncompressed, err := cache.Put(ctx, limited, Hex(diffID))
	if mismatch := (*fetch.MismatchError)(nil); errors.As(err, &mismatch) {
		mismatch.Name, mismatch.URL = "uncompressed "+what, from
	}
	if err != nil {
		return 0, fmt.Errorf("decompressing %s: %w", what, err)
	}
	return uncompressed, nil
}

var (
	gzipMagic = []byte{0x1f, 0x8b}
	zstdMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}
)

// Compressed reports whether Decompress would decompress r.
func Compressed(r io.ReaderAt) (bool, error) {
	magic := make([]byte, 4)
	n, err := r.ReadAt(magic, 0)
	if err == io.EOF {
		err = nil
	}
	return bytes.HasPrefix(magic[:n], gzipMagic) || bytes.HasPrefix(magic[:n], zstdMagic), err
}

// Decompress returns the tar in r. It detects the compression from the first bytes,
// because media types and file names may be wrong.
func Decompress(r io.Reader) (io.ReadCloser, error) {
	b := bufio.NewReaderSize(r, 1<<20)
	magic, err := b.Peek(4)
	if err != nil && err != io.EOF {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(magic, gzipMagic):
		return gzip.NewReader(b)
	case bytes.HasPrefix(magic, zstdMagic):
		z, err := zstd.NewReader(b, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(head.MaxWindow))
		if err != nil {
			return nil, err
		}
		return z.IOReadCloser(), nil
	}
	return io.NopCloser(b), nil
}
