package zstdenc

import (
	"encoding/binary"
	"math/bits"
)

// A ring has the last bytes of the input. The byte at position p of the input is at p
// modulo the ring's size, which is a power of two and twice the window. So a writer that is
// ahead of a reader does not overwrite the reader's window.
type ring struct {
	data []byte
	mask uint64
}

func newRing(window int) ring {
	data := make([]byte, 2*window)
	useHugePages(data)
	return ring{data: data, mask: uint64(2*window - 1)}
}

func (r *ring) write(pos uint64, p []byte) {
	n := copy(r.data[pos&r.mask:], p)
	copy(r.data, p[n:])
}

// matchLength returns how many bytes from positions a and b on are equal, at most limit. It
// stops at the end of the ring's data, which shortens at most one match per cycle.
func (r *ring) matchLength(a, b uint64, limit int) int {
	x, y := r.data[a&r.mask:], r.data[b&r.mask:]
	limit = min(limit, len(x), len(y))
	x, y = x[:limit], y[:limit]
	n := 0
	for len(x) >= n+8 {
		if d := binary.LittleEndian.Uint64(x[n:]) ^ binary.LittleEndian.Uint64(y[n:]); d != 0 {
			return n + bits.TrailingZeros64(d)/8
		}
		n += 8
	}
	for n < limit && x[n] == y[n] {
		n++
	}
	return n
}
