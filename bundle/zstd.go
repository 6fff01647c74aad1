package bundle

import (
	"io"
	"math/bits"

	"github.com/klauspost/compress/zstd"
)

// A Level says how hard to compress.
type Level int

const (
	Best Level = iota // as small as the encoder gets it
	Fast              // quick and larger, for tests and trials
)

const (
	// maxWindow is the farthest a match may reach back: 128 MiB, the most a
	// stock zstd decodes without being told to (its limit is --long=27).
	maxWindow = 128 << 20

	// minWindow keeps small payloads ordinary: below 1 MiB nothing is gained.
	minWindow = 1 << 20
)

// windowFor returns the smallest window that reaches across a payload of size
// bytes: a decoder sets aside that much memory.
func windowFor(size int64) int {
	if size >= maxWindow {
		return maxWindow
	}
	return max(minWindow, 1<<bits.Len64(uint64(size)))
}

// newEncoder is the one place that knows how a payload is compressed.
func newEncoder(w io.Writer, size int64, l Level) (io.WriteCloser, error) {
	level := zstd.SpeedBestCompression
	if l == Fast {
		level = zstd.SpeedFastest
	}
	return zstd.NewWriter(w,
		zstd.WithEncoderLevel(level),
		zstd.WithWindowSize(windowFor(size)),
		// Fixed, so that no machine's number of cores is a reason for
		// other bytes.
		zstd.WithEncoderConcurrency(2),
	)
}

// newDecoder is newEncoder's counterpart. A stream that asks for a window
// beyond maxWindow is an error from Read.
func newDecoder(r io.Reader) (*zstd.Decoder, error) {
	return zstd.NewReader(r,
		zstd.WithDecoderMaxWindow(maxWindow),
		zstd.WithDecoderLowmem(true),
		// Two blocks in flight: decoding overlaps with what the caller
		// does with the bytes.
		zstd.WithDecoderConcurrency(2),
	)
}
