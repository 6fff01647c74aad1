package zstdenc

import (
	"math/bits"

	"github.com/klauspost/compress/huff0"
)

// A blockWriter writes blocks (RFC 8878, 3.1.1.2).
type blockWriter struct {
	huffman *huff0.Scratch
	tables  [3]fseTable // literal lengths, offsets, match lengths
}

func newBlockWriter() *blockWriter {
	// Literals are not compressed if a Huffman code saves less than a
	// sixteenth, because uncompressed literals are faster to decode.
	return &blockWriter{huffman: &huff0.Scratch{WantLogLess: 4}}
}

const (
	rawBlock        = 0
	compressedBlock = 2
)

// blockHeader appends the header of a block.
func blockHeader(out []byte, last bool, kind, size int) []byte {
	h := kind<<1 | size<<3
	if last {
		h |= 1
	}
	return append(out, byte(h), byte(h>>8), byte(h>>16))
}

// compress appends the compressed block of the literals and sequences.
func (w *blockWriter) compress(out, literals []byte, list []sequence) []byte {
	return w.sequences(w.literals(out, literals), list)
}

// Types of a literals section.
const (
	rawLiterals      = 0
	repeatedLiteral  = 1
	huffmanLiterals  = 2
	treelessLiterals = 3
)

func (w *blockWriter) literals(out, literals []byte) []byte {
	n := len(literals)
	if n >= 64 {
		encode, format, width := huff0.Compress4X, 3, 18
		switch {
		case n < 1<<8:
			encode, format, width = huff0.Compress1X, 0, 10
		case n < 1<<10:
			format, width = 1, 10
		case n < 1<<14:
			format, width = 2, 14
		}
		packed, reused, err := encode(literals, w.huffman)
		switch {
		case err == huff0.ErrUseRLE:
			return append(plainHeader(out, repeatedLiteral, n), literals[0])
		case err == nil && len(packed) < n:
			kind := huffmanLiterals
			if reused {
				kind = treelessLiterals
			}
			h := uint64(kind | format<<2 | n<<4)
			h |= uint64(len(packed)) << (4 + width)
			for range (4 + 2*width + 7) / 8 {
				out = append(out, byte(h))
				h >>= 8
			}
			return append(out, packed...)
		}
	}
	return append(plainHeader(out, rawLiterals, n), literals...)
}

func plainHeader(out []byte, kind, n int) []byte {
	switch {
	case n < 1<<5:
		return append(out, byte(kind|n<<3))
	case n < 1<<12:
		return append(out, byte(kind|1<<2|n<<4), byte(n>>4))
	}
	return append(out, byte(kind|3<<2|n<<4), byte(n>>4), byte(n>>12))
}

func (w *blockWriter) sequences(out []byte, list []sequence) []byte {
	n := len(list)
	switch {
	case n < 128:
		out = append(out, byte(n))
	case n < 0x7F00:
		out = append(out, byte(n>>8+128), byte(n))
	default:
		out = append(out, 255, byte(n-0x7F00), byte((n-0x7F00)>>8))
	}
	if n == 0 {
		return out
	}
	modes := len(out)
	out = append(out, 0)
	for k, most := range [...]uint{9, 8, 9} { // maximum table sizes, as powers of two
		var counts [64]uint32
		for _, s := range list {
			counts[s.codes()[k]]++
		}
		const (
			rle        = 1
			compressed = 2
		)
		mode := compressed
		if first := list[0].codes()[k]; counts[first] == uint32(n) {
			mode = rle
			out = append(out, first)
			w.tables[k] = fseTable{next: append(w.tables[k].next[:0], 0)} // the symbol takes no bits
		} else {
			log := max(5, min(most, uint(bits.Len(uint(n)))))
			if k != 1 {
				log = max(6, log) // the table must have room for up to 53 symbols
			}
			norm := normalize(counts[:], uint32(n), log)
			out = describe(out, norm, log)
			w.tables[k].set(norm, log)
		}
		out[modes] |= byte(mode << (6 - 2*k))
	}

	// Decoders read the bits from the end.
	b := bitWriter{out: out}
	literals, offsets, matches := &w.tables[0], &w.tables[1], &w.tables[2]
	var literalState, offsetState, matchState uint32
	for i := n - 1; i >= 0; i-- {
		s := list[i]
		c := s.codes()
		if i == n-1 {
			literalState, offsetState, matchState = literals.begin(c[0]), offsets.begin(c[1]), matches.begin(c[2])
		} else {
			offsetState = offsets.encode(&b, offsetState, c[1])
			matchState = matches.encode(&b, matchState, c[2])
			literalState = literals.encode(&b, literalState, c[0])
		}
		r := literalCodes[c[0]]
		b.add(s.literals-r.base, uint(r.bits))
		r = matchCodes[c[2]]
		b.add(s.match-r.base, uint(r.bits))
		b.add(s.offset-1<<c[1], uint(c[1]))
	}
	b.add(matchState, matches.log)
	b.add(offsetState, offsets.log)
	b.add(literalState, literals.log)
	b.add(1, 1)
	b.end()
	return b.out
}

// codes returns the codes of the literals length, the offset and the match
// length.
func (s sequence) codes() [3]uint8 {
	return [3]uint8{literalCode(s.literals), offsetCode(s.offset), matchCode(s.match)}
}
