package bundle

import (
	"io"
	"math/bits"
	"runtime"

	"github.com/klauspost/compress/zstd"

	"airlift/bundle/head"
)

// A Level says how hard to compress.
type Level int

const (
	Best Level = iota // as small as the encoder gets it
	Fast              // quick and larger, for tests and trials
)

const (
	maxWindow = head.MaxWindow

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
//
// Measured on the programs of Kubernetes 1.29.15 and what goes with it, 813 MB
// in boot order, as processor time on one machine: Best 175 MB in 60 s, Fast
// 272 MB in 5 s, both with the 128 MiB window. On a mixture of 682 MB
// SpeedBetterCompression lost a quarter of the ratio: 226 MB in 18 s against
// Best's 183 MB in 60 s. WithConcurrentBlocks gave 183 MB as well, but keeps
// sections of four windows in memory, 2.9 GB instead of 0.6 GB.
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
	// The decoder works in three stages that hand blocks on to each other. Four
	// blocks in flight keep all stages busy; with one core it is cheaper to
	// decode within Read. Measured on a bundle of 949 MB unpacked, on two cores:
	// 0.67 s with four, 0.89 s with two, 0.85 s within Read, where the processor
	// time is 0.84 s instead of 0.97 s.
	blocks := 4
	if runtime.GOMAXPROCS(0) == 1 {
		blocks = 1
	}
	return zstd.NewReader(r,
		zstd.WithDecoderMaxWindow(maxWindow),
		zstd.WithDecoderLowmem(true),
		zstd.WithDecoderConcurrency(blocks),
	)
}
