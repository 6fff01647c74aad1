package zstdenc

import "math/bits"

// Lengths and offsets are encoded as a code, which is compressed, and a number of
// additional bits, which are not (3.1.1.3.2.1.1).

// A codeRange has the values of one code: base and the 1<<bits-1 values that follow it.
type codeRange struct {
	base uint32
	bits uint8
}

// literalsLengthCodes are the ranges of the Literals_Length_Codes.
var literalsLengthCodes = ranges(0, []uint8{
	0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
	1, 1, 1, 1, 2, 2, 3, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,
})

// matchLengthCodes are the ranges of the Match_Length_Codes.
var matchLengthCodes = ranges(minMatch, []uint8{
	0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
	1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,
})

// minMatch is the minimum match length of the format.
const minMatch = 3

// maxOffsetCode is the code of a match 2^31 bytes back, farther than any window.
const maxOffsetCode = 31

// ranges returns ranges that follow each other, from the numbers of their bits.
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
	shortLiteralsLengths = codesOf(literalsLengthCodes, 0, 64)
	shortMatchLengths    = codesOf(matchLengthCodes, minMatch, 128)
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

// literalsLengthCode returns the code of a run of n literals. For 64 and more literals, each code
// covers twice as many values as the previous code. A run of a whole block has no valid code and
// needs none, because such a block has no sequences.
func literalsLengthCode(n uint32) uint8 {
	if n < 64 {
		return shortLiteralsLengths[n]
	}
	return uint8(min(bits.Len32(n)+18, len(literalsLengthCodes)-1))
}

// matchLengthCode returns the code of a match of n bytes. From minMatch+128 on, each code
// has twice as many values as the previous one.
func matchLengthCode(n uint32) uint8 {
	n -= minMatch
	if n < 128 {
		return shortMatchLengths[n]
	}
	return uint8(bits.Len32(n) + 35)
}

// offsetCode returns the code of an Offset_Value. It is also the number of its additional
// bits.
func offsetCode(value uint32) uint8 { return uint8(bits.Len32(value) - 1) }
