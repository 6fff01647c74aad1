package zstdenc

import (
	"encoding/binary"
	"fmt"
	"io"
	"math/bits"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
)

// A Writer compresses its input into one zstd frame. It uses up to three goroutines:
// the caller's, one that finds matches and one that chooses among them. Their timing
// does not change the result.
type Writer struct {
	ring ring
	pos  uint64 // position of the next byte
	cur  *block

	free   chan *block
	filled chan *block // for find
	found  chan *block // for compress
	done   chan struct{}
	err    atomic.Pointer[error] // the first error of a write to the output
}

// NewWriter returns a Writer that writes to w. Its matches reach back up to window
// bytes, a power of two from 1 MiB to 128 MiB.
func NewWriter(w io.Writer, window int) (*Writer, error) {
	if window < 1<<20 || window > 128<<20 || window&(window-1) != 0 {
		return nil, fmt.Errorf("a window of %d bytes is not a power of two from 1 MiB to 128 MiB", window)
	}
	// All blocks in progress together are smaller than half the ring.
	const underWay = 6
	z := &Writer{
		ring: newRing(window),
		free: make(chan *block, underWay), filled: make(chan *block, underWay), found: make(chan *block, underWay),
		done: make(chan struct{}),
	}
	for range underWay {
		z.free <- &block{first: make([]uint32, blockSize+1)}
	}
	z.next()
	go z.find(newFinder(z.ring, window))
	go z.compress(w, newParser(z.ring, window), window)
	return z, nil
}

func (z *Writer) next() {
	z.cur = <-z.free
	z.cur.start, z.cur.size, z.cur.last = z.pos, 0, false
}

// Write returns an error if an earlier write to the output failed.
func (z *Writer) Write(p []byte) (int, error) {
	written := 0
	for len(p) > 0 {
		if err := z.err.Load(); err != nil {
			return written, *err
		}
		if z.cur.size == blockSize {
			z.filled <- z.cur
			z.next()
		}
		n := min(len(p), blockSize-z.cur.size)
		z.ring.write(z.pos, p[:n])
		z.pos += uint64(n)
		z.cur.size += n
		written += n
		p = p[n:]
	}
	return written, nil
}

// Close ends the frame. It does not close the output.
func (z *Writer) Close() error {
	if z.cur != nil {
		z.cur.last = true
		z.filled <- z.cur
		z.cur = nil
		close(z.filled)
	}
	<-z.done
	if err := z.err.Load(); err != nil {
		return *err
	}
	return nil
}

func (z *Writer) find(f *finder) {
	defer close(z.found)
	for b := range z.filled {
		f.find(b)
		z.found <- b
	}
}

func (z *Writer) compress(w io.Writer, p *parser, window int) {
	defer close(z.done)
	// The frame header: magic number, checksum flag, window size. It has no content
	// size.
	out := []byte{0x28, 0xB5, 0x2F, 0xFD, 1 << 2, byte(bits.Len(uint(window))-1-10) << 3}
	sum := xxhash.New()
	bw := newBlockWriter()
	var packed []byte
	for b := range z.found {
		if z.err.Load() == nil {
			at := b.start & z.ring.mask
			content := z.ring.data[at:min(at+uint64(b.size), uint64(len(z.ring.data)))]
			wrapped := z.ring.data[:b.size-len(content)]
			sum.Write(content)
			sum.Write(wrapped)

			before := p.recent
			p.parse(b)
			packed = bw.compress(packed[:0], p.literals, p.sequences)
			if len(packed) < b.size {
				out = append(blockHeader(out, b.last, compressedBlock, len(packed)), packed...)
			} else {
				// The decoder gets a raw block, so later blocks must not depend on
				// this state.
				p.recent = before
				bw = newBlockWriter()
				out = append(append(blockHeader(out, b.last, rawBlock, b.size), content...), wrapped...)
			}
			if b.last {
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
