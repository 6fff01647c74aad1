package zstdenc

import "math/bits"

// Lengths and offsets are encoded as a code, which is compressed, and a number of
// uncompressed bits (RFC 8878, 3.1.1.3.2.1.1).

// A codeRange has the values of one code: base and the 1<<bits-1 values that
// follow it.
type codeRange struct {
	base uint32
	bits uint8
}

var literalCodes = ranges(0, []uint8{
	0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
	1, 1, 1, 1, 2, 2, 3, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,
})

var matchCodes = ranges(minMatch, []uint8{
	0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
	1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,
})

// minMatch is the minimum match length of the format.
const minMatch = 3

// maxOffsetCode is the code of a match 2^31 bytes back, farther than any window.
const maxOffsetCode = 31

func ranges(base uint32, widths []uint8) []codeRange {
	list := make([]codeRange, len(widths))
	for i, w := range widths {
		list[i] = codeRange{base, w}
		base += 1 << w
	}
	return list
}

// Codes of lengths that are too small for the formula.
var (
	shortLiteralCodes = codesOf(literalCodes, 0, 64)
	shortMatchCodes   = codesOf(matchCodes, minMatch, 128)
)

// codesOf returns the codes of n values, starting at base.
func codesOf(list []codeRange, base uint32, n int) []uint8 {
	t := make([]uint8, n)
	for code, r := range list {
		for i := range 1 << r.bits {
			if v := int(r.base-base) + i; v < n {
				t[v] = uint8(code)
			}
		}
	}
	return t
}

// literalCode returns the code of a run of n literals. From 64 on, each code has
// twice as many values as the previous one. A run of a whole block has no valid
// code and needs none, because such a block has no sequences.
func literalCode(n uint32) uint8 {
	if n < 64 {
		return shortLiteralCodes[n]
	}
	return uint8(min(bits.Len32(n)+18, len(literalCodes)-1))
}

// matchCode returns the code of a match of n bytes. From minMatch+128 on, each
// code has twice as many values as the previous one.
func matchCode(n uint32) uint8 {
	n -= minMatch
	if n < 128 {
		return shortMatchCodes[n]
	}
	return uint8(bits.Len32(n) + 35)
}

func offsetCode(offset uint32) uint8 { return uint8(bits.Len32(offset) - 1) }
