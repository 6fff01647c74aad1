package zstdenc

import (
	"math/bits"

	"github.com/klauspost/compress/huff0"
)

type blockWriter struct {
	huffman *huff0.Scratch // also the decoder's current Huffman tree
	tables  [3]fseTable    // for literals lengths, offsets and match lengths
}

func newBlockWriter() *blockWriter {
	// Literals are not compressed if a Huffman code saves less than a
	// sixteenth, because uncompressed literals are faster to decode.
	return &blockWriter{huffman: &huff0.Scratch{WantLogLess: 4}}
}

// The Block_Types that are used (3.1.1.2.2).
const (
	rawBlock        = 0
	compressedBlock = 2
)

// blockHeader appends a Block_Header (3.1.1.2): Last_Block, Block_Type and Block_Size.
func blockHeader(out []byte, last bool, kind, size int) []byte {
	h := kind<<1 | size<<3
	if last {
		h |= 1
	}
	return append(out, byte(h), byte(h>>8), byte(h>>16))
}

// compress appends the content of a compressed block.
func (w *blockWriter) compress(out, literals []byte, list []sequence) []byte {
	return w.sequences(w.literals(out, literals), list)
}

// Literals_Block_Types (3.1.1.3.1.1).
const (
	rawLiterals        = 0
	rleLiterals        = 1
	compressedLiterals = 2
	treelessLiterals   = 3 // with the previous Huffman tree
)

// literals appends the Literals_Section (3.1.1.3.1).
func (w *blockWriter) literals(out, literals []byte) []byte {
	n := len(literals)
	if n >= 64 { // fewer would hardly pay for a tree
		// Size_Format: up to 1 KiB, both sizes have ten bits; format 0 has one stream,
		// the others four.
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
			return append(plainHeader(out, rleLiterals, n), literals[0])
		case err == nil && len(packed) < n:
			kind := compressedLiterals
			if reused {
				kind = treelessLiterals
			}
			// The header has the sizes before and after compression.
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

// plainHeader appends the Literals_Section_Header of raw or RLE literals, in one to three
// bytes.
func plainHeader(out []byte, kind, n int) []byte {
	switch {
	case n < 1<<5:
		return append(out, byte(kind|n<<3))
	case n < 1<<12:
		return append(out, byte(kind|1<<2|n<<4), byte(n>>4))
	}
	return append(out, byte(kind|3<<2|n<<4), byte(n>>4), byte(n>>12))
}

// sequences appends the Sequences_Section (3.1.1.3.2).
func (w *blockWriter) sequences(out []byte, list []sequence) []byte {
	n := len(list)
	switch { // Number_of_Sequences (3.1.1.3.2.1)
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
	out = append(out, 0)                        // Symbol_Compression_Modes, set below
	for k, maxLog := range [...]uint{9, 8, 9} { // maximum Accuracy_Log of each table
		var counts [64]uint32
		for _, s := range list {
			counts[s.codes()[k]]++
		}
		const (
			rle        = 1 // RLE_Mode
			compressed = 2 // FSE_Compressed_Mode
		)
		mode := compressed
		if first := list[0].codes()[k]; counts[first] == uint32(n) {
			mode = rle
			out = append(out, first)
			w.tables[k] = fseTable{next: append(w.tables[k].next[:0], 0)} // one state, of no bits
		} else {
			log := max(5, min(maxLog, uint(bits.Len(uint(n)))))
			if k != 1 {
				log = max(6, log) // the table must have room for up to 53 symbols
			}
			norm := normalize(counts[:], uint32(n), log)
			out = appendTable(out, norm, log)
			w.tables[k].build(norm, log)
		}
		out[modes] |= byte(mode << (6 - 2*k))
	}

	// The bitstream (3.1.1.3.2.1.2). Decoders read it backwards, so the last sequence comes
	// first, and what they read first comes last: the initial states, after a final 1 bit.
	b := bitWriter{out: out}
	literals, offsets, matches := &w.tables[0], &w.tables[1], &w.tables[2]
	var literalState, offsetState, matchState uint32
	for i := n - 1; i >= 0; i-- {
		s := list[i]
		c := s.codes()
		if i == n-1 {
			literalState, offsetState, matchState = literals.initialState(c[0]), offsets.initialState(c[1]), matches.initialState(c[2])
		} else {
			offsetState = offsets.encode(&b, offsetState, c[1])
			matchState = matches.encode(&b, matchState, c[2])
			literalState = literals.encode(&b, literalState, c[0])
		}
		r := literalsLengthCodes[c[0]]
		b.add(s.literals-r.base, uint(r.bits))
		r = matchLengthCodes[c[2]]
		b.add(s.match-r.base, uint(r.bits))
		b.add(s.offsetValue-1<<c[1], uint(c[1]))
	}
	b.add(matchState, matches.log)
	b.add(offsetState, offsets.log)
	b.add(literalState, literals.log)
	b.add(1, 1)
	b.end()
	return b.out
}

// codes returns the codes of the literals length, the offset and the match length.
func (s sequence) codes() [3]uint8 {
	return [3]uint8{literalsLengthCode(s.literals), offsetCode(s.offsetValue), matchLengthCode(s.match)}
}
