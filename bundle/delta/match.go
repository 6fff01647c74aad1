package delta

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// A step copies bytes from the reference and then inserts new ones. The copied bytes are only
// similar to the wanted bytes, so a step also stores a number to add to each.
type step struct {
	from     int // offset in the reference
	copied   int // bytes
	inserted int // bytes
}

const (
	// A match is found by the hash of this many bytes. Compiled code repeats shorter ones often.
	seed = 16
	// The reference is indexed at every strideth byte: machine code is aligned to more.
	stride = 4
	// Matches are compared up to this length, to choose between two.
	enough = 256
	// A match must be this much longer than the bytes that the alignment before it also has.
	margin = 8
)

// An index finds where the reference has the same bytes.
type index struct {
	reference []byte
	shift     uint
	table     []uint32 // offsets + 1
}

func newIndex(reference []byte) *index {
	slots := bits.Len(uint(max(len(reference)/stride, 1024)))
	x := &index{reference: reference, shift: uint(64 - slots), table: make([]uint32, 1<<slots)}
	for i := 0; i+seed <= len(reference); i += stride {
		x.table[x.slot(reference[i:])] = uint32(i) + 1
	}
	return x
}

// slot hashes the first 16 bytes.
func (x *index) slot(b []byte) uint64 {
	lo, hi := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
	// Odd constants with many bits, so that every byte changes the highest bits.
	return (lo*0x9E3779B97F4A7C15 ^ bits.RotateLeft64(hi, 31)*0xC2B2AE3D27D4EB4F) * 0x9E3779B97F4A7C15 >> x.shift
}

// find returns the position in the reference of a prefix of b, and the length of that prefix.
func (x *index) find(b []byte) (at, length int) {
	if len(b) < seed {
		return 0, 0
	}
	at = int(x.table[x.slot(b)]) - 1
	if at < 0 {
		return 0, 0
	}
	length = common(x.reference[at:], b[:min(len(b), enough)])
	if length < seed {
		return 0, 0
	}
	return at, length
}

func common(a, b []byte) int {
	n := min(len(a), len(b))
	i := 0
	for ; i+8 <= n; i += 8 {
		if x := binary.LittleEndian.Uint64(a[i:]) ^ binary.LittleEndian.Uint64(b[i:]); x != 0 {
			return i + bits.TrailingZeros64(x)/8
		}
	}
	for i < n && a[i] == b[i] {
		i++
	}
	return i
}

// steps returns how to make wanted from the reference.
//
// The search follows an alignment, a difference between offsets, as long as most bytes are
// equal, because an insertion in a binary moves everything after it and changes only the
// addresses in between.
func steps(reference, wanted []byte) []step {
	x := newIndex(reference)
	var list []step
	begin, from := 0, 0 // where the alignment was found, in wanted and in the reference
	end := func(at, next int) (start int) {
		copied := forward(reference[from:], wanted[begin:at])
		start = at
		if at < len(wanted) {
			start -= backward(reference[:next], wanted[begin+copied:at])
		}
		list = append(list, step{from: from, copied: copied, inserted: start - begin - copied})
		return start
	}
	for at := 0; at < len(wanted); {
		here := from + at - begin
		if here < len(reference) {
			if n := common(reference[here:], wanted[at:]); n >= seed {
				at += n
				continue
			}
		}
		next, length := x.find(wanted[at:])
		if length == 0 || length <= equal(reference[min(here, len(reference)):], wanted[at:at+length])+margin {
			at++
			continue
		}
		start := end(at, next)
		begin, from = start, next-(at-start)
		at += length
	}
	end(len(wanted), 0)
	return list
}

// equal counts the bytes of b that a has at the same place.
func equal(a, b []byte) (n int) {
	for i := range min(len(a), len(b)) {
		if a[i] == b[i] {
			n++
		}
	}
	return n
}

// forward is the length of the prefix of wanted that mostly matches reference.
func forward(reference, wanted []byte) (best int) {
	score, most := 0, 0
	for i := range min(len(reference), len(wanted)) {
		if reference[i] == wanted[i] {
			score++
		} else {
			score--
		}
		if score > most {
			most, best = score, i+1
		}
	}
	return best
}

// backward is the length of the suffix of wanted that mostly matches reference.
func backward(reference, wanted []byte) (best int) {
	score, most := 0, 0
	for i := 1; i <= min(len(reference), len(wanted)); i++ {
		if reference[len(reference)-i] == wanted[len(wanted)-i] {
			score++
		} else {
			score--
		}
		if score > most {
			most, best = score, i
		}
	}
	return best
}

// difference appends what to add to the copied bytes of a step to dst.
func difference(dst, reference, wanted []byte) []byte {
	if bytes.Equal(reference, wanted) {
		return append(dst, make([]byte, len(wanted))...)
	}
	for i := range wanted {
		dst = append(dst, wanted[i]-reference[i])
	}
	return dst
}
