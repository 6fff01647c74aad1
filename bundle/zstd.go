package bundle

import (
	"math/bits"
	"runtime"

	"github.com/klauspost/compress/zstd"

	"airlift/bundle/head"
)

const (
	maxWindow = head.MaxWindow

	// minWindow keeps small parts ordinary: below 1 MiB nothing is gained.
	minWindow = 1 << 20

	// headWindow is the largest for the part that every start of the file
	// decodes. Measured on an installer of 38 MB: with 8 MiB instead of 64 the
	// part is 0.7 % larger, and "install version" takes 68 ms instead of 74 and
	// 10 MB less memory.
	headWindow = 8 << 20
)

// windowFor returns the smallest window that reaches across size bytes: a
// decoder sets aside that much memory.
func windowFor(size int64) int {
	if size >= maxWindow {
		return maxWindow
	}
	return max(minWindow, 1<<bits.Len64(uint64(size)))
}

// newDecoder is newEncoder's counterpart; it reads what it is Reset to. A frame
// that asks for a window beyond maxWindow is an error from Read.
func newDecoder() (*zstd.Decoder, error) {
	// The decoder works in three stages that hand blocks on to each other. Four
	// blocks in flight keep all stages busy; with one core it is cheaper to
	// decode within Read. Measured on a bundle of 949 MB unpacked, on two cores:
	// 0.67 s with four, 0.89 s with two, 0.85 s within Read, where the processor
	// time is 0.84 s instead of 0.97 s.
	blocks := 4
	if runtime.GOMAXPROCS(0) == 1 {
		blocks = 1
	}
	return zstd.NewReader(nil,
		zstd.WithDecoderMaxWindow(maxWindow),
		zstd.WithDecoderLowmem(true),
		zstd.WithDecoderConcurrency(blocks),
	)
}
