package zstdenc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
)

// The limits of the window, in bytes. The zstd command decodes windows up to 128 MiB
// without an option. Other decoders may accept only 8 MiB (3.1.1.1.2).
const (
	MinWindow = 1 << 20
	MaxWindow = 128 << 20
)

// A Writer compresses what is written to it into one zstd frame.
//
// It uses up to three goroutines: the caller's, one that finds matches and one that chooses
// and encodes them. It needs about four times its window in memory, and 16 MiB. The caller
// must call Close, also after an error, because it ends the goroutines.
type Writer struct {
	ring    ring
	pos     uint64 // position of the next byte
	current *block // the block that Write fills; nil after Close

	free   chan *block
	filled chan *block // for find
	found  chan *block // for encode
	done   chan struct{}
	err    atomic.Pointer[error] // the first error of a write to the output
}

// NewWriter returns a Writer that writes to w. Its matches reach back up to window bytes,
// a power of two from MinWindow to MaxWindow. A decoder needs as much memory.
func NewWriter(w io.Writer, window int) (*Writer, error) {
	if window < MinWindow || window > MaxWindow || window&(window-1) != 0 {
		return nil, fmt.Errorf("a window of %d bytes is not a power of two from 1 MiB to 128 MiB", window)
	}
	// All blocks in progress together are smaller than half the ring.
	const inProgress = 6
	z := &Writer{
		ring: newRing(window),
		free: make(chan *block, inProgress), filled: make(chan *block, inProgress), found: make(chan *block, inProgress),
		done: make(chan struct{}),
	}
	for range inProgress {
		z.free <- &block{first: make([]uint32, blockSize+1)}
	}
	z.nextBlock()
	go z.find(newFinder(z.ring, window))
	go z.encode(w, newParser(z.ring, window), window)
	return z, nil
}

func (z *Writer) nextBlock() {
	z.current = <-z.free
	z.current.start, z.current.size, z.current.last = z.pos, 0, false
}

// errClosed is the error of Write after Close.
var errClosed = errors.New("writing to a closed zstd encoder")

// Write compresses p. An error may belong to an earlier Write, because compressed data is
// written to the output later.
func (z *Writer) Write(p []byte) (int, error) {
	if z.current == nil {
		return 0, errClosed
	}
	written := 0
	for len(p) > 0 {
		if err := z.err.Load(); err != nil {
			return written, *err
		}
		if z.current.size == blockSize {
			z.filled <- z.current
			z.nextBlock()
		}
		n := min(len(p), blockSize-z.current.size)
		z.ring.write(z.pos, p[:n])
		z.pos += uint64(n)
		z.current.size += n
		written += n
		p = p[n:]
	}
	return written, nil
}

// Close ends the frame and returns the first error of a write to the output. It does not
// close the output. A second Close returns the same error.
func (z *Writer) Close() error {
	if z.current != nil {
		z.current.last = true
		z.filled <- z.current
		z.current = nil
		close(z.filled)
	}
	<-z.done
	if err := z.err.Load(); err != nil {
		return *err
	}
	return nil
}

// find is the second stage: it finds the matches of each block.
func (z *Writer) find(f *finder) {
	defer close(z.found)
	for b := range z.filled {
		f.find(b)
		z.found <- b
	}
}

// encode is the third stage: it writes the frame to w.
func (z *Writer) encode(w io.Writer, p *parser, window int) {
	defer close(z.done)
	out := frameHeader(window)
	sum := xxhash.New()
	bw := newBlockWriter()
	var packed []byte
	for b := range z.found {
		if z.err.Load() == nil {
			// A block at the ring's end continues at its beginning.
			at := b.start & z.ring.mask
			content := z.ring.data[at:min(at+uint64(b.size), uint64(len(z.ring.data)))]
			wrapped := z.ring.data[:b.size-len(content)]
			sum.Write(content)
			sum.Write(wrapped)

			before := p.repeats
			p.parse(b)
			packed = bw.compress(packed[:0], p.literals, p.sequences)
			if len(packed) < b.size {
				out = append(blockHeader(out, b.last, compressedBlock, len(packed)), packed...)
			} else {
				// A raw block changes neither the decoder's repeat offsets nor its
				// tables. So later blocks must not depend on this attempt.
				p.repeats = before
				bw = newBlockWriter()
				out = append(append(blockHeader(out, b.last, rawBlock, b.size), content...), wrapped...)
			}
			if b.last {
				// Content_Checksum (3.1.1): the low four bytes of XXH64.
				out = binary.LittleEndian.AppendUint32(out, uint32(sum.Sum64()))
			}
			if _, err := w.Write(out); err != nil {
				z.err.Store(&err)
			}
			out = out[:0]
		}
		z.free <- b
	}
}

// frameHeader returns the magic number and the frame header (3.1.1.1).
func frameHeader(window int) []byte {
	const contentChecksum = 1 << 2              // Frame_Header_Descriptor (3.1.1.1.1)
	exponent := bits.Len(uint(window)) - 1 - 10 // Window_Descriptor (3.1.1.1.2); the mantissa is 0
	return []byte{0x28, 0xB5, 0x2F, 0xFD, contentChecksum, byte(exponent << 3)}
}
