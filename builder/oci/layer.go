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

	"airlift/builder/fetch"
	"airlift/bundle"
	"airlift/internal/fault"
)

// StoreLayer decompresses a layer of size compressed bytes to the cache, compares it with
// its diffID, and returns its uncompressed size. what and from name the layer and its
// source in messages.
func StoreLayer(ctx context.Context, cache *fetch.Cache, r io.Reader, diffID string, size int64, what, from string) (int64, error) {
	buffered := bufio.NewReaderSize(r, 1<<20)
	begin, err := buffered.Peek(magicSize)
	if err != nil && err != io.EOF {
		return 0, fmt.Errorf("reading %s: %w", what, err)
	}
	unknown, _ := Unsupported(begin)
	tar, err := Decompress(buffered)
	if err != nil {
		return 0, fmt.Errorf("decompressing %s: %w", what, err)
	}
	defer tar.Close()
	limited := fetch.LimitUnpacked(tar, "unpacked "+what, size)
	_, uncompressed, err := cache.Put(ctx, limited, Hex(diffID))
	if mismatch := (*fetch.MismatchError)(nil); errors.As(err, &mismatch) {
		mismatch.Name, mismatch.URL = "uncompressed "+what, from
		if unknown != "" {
			return 0, fault.New(fault.Failure, "%s is compressed with %s, which containerd does not support", what, unknown).Hint("build the image again with layers that are compressed with gzip or zstd, or not at all")
		}
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

// magicSize is the number of bytes by which every compression can be recognized.
const magicSize = 6

// unsupported are the compressions that neither containerd nor Decompress supports, each with the
// command that decompresses a file to its output.
var unsupported = []struct{ magic, name, command string }{
	{"\xfd7zXZ\x00", "xz", "xz -dc"},
	{"BZh", "bzip2", "bzip2 -dc"},
	{"\x04\x22\x4d\x18", "lz4", "lz4 -dc"},
	{"\x5d\x00\x00", "lzma", "xz -dc"},
	{"LZIP", "lzip", "lzip -dc"},
	{"\x89LZO", "lzop", "lzop -dc"},
	{"\x1f\x9d", "compress", "gzip -dc"},
	{"PK\x03\x04", "zip", "unzip -p"},
	{"7z\xbc\xaf\x27\x1c", "7z", "7z x -so"},
}

// Unsupported returns the name of the compression of a file that begins with these bytes, and the
// command that decompresses it to its output. Both are empty if there is none, or if Decompress supports it.
func Unsupported(begin []byte) (name, command string) {
	for _, u := range unsupported {
		if bytes.HasPrefix(begin, []byte(u.magic)) {
			return u.name, u.command
		}
	}
	return "", ""
}

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
		z, err := zstd.NewReader(b, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(bundle.MaxWindow))
		if err != nil {
			return nil, err
		}
		return z.IOReadCloser(), nil
	}
	return io.NopCloser(b), nil
}
