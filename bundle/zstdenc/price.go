package zstdenc

import "math"

// A price is a number of bits, times 256.
type price = int32

// prices estimate the cost of each symbol from its recent frequency.
type prices struct {
	literals  [256]uint32
	literalLs [36]uint32
	matchLs   [53]uint32
	offsets   [maxOffsetCode + 1]uint32

	literal  [256]price
	literalL [blockSize + 1]price     // of the length of a run of literals
	matchL   [blockSize + 1]price     // of the length of a match
	offset   [maxOffsetCode + 1]price // by code, including the extra bits
}

func newPrices() *prices {
	p := new(prices)
	for i := range p.literals {
		p.literals[i] = 4
	}
	for i := range p.literalLs {
		p.literalLs[i] = uint32(max(1, 24-i))
	}
	for i := range p.matchLs {
		p.matchLs[i] = uint32(max(1, 24-i))
	}
	for i := range p.offsets {
		p.offsets[i] = 4
	}
	p.update()
	return p
}

// count adds the symbols of a block, and halves the earlier counts.
func (p *prices) count(literals []byte, list []sequence) {
	halve(p.literals[:])
	halve(p.literalLs[:])
	halve(p.matchLs[:])
	halve(p.offsets[:])
	for _, c := range literals {
		p.literals[c]++
	}
	for _, s := range list {
		p.literalLs[literalCode(s.literals)]++
		p.matchLs[matchCode(s.match)]++
		p.offsets[offsetCode(s.offset)]++
	}
	p.update()
}

func halve(counts []uint32) {
	for i := range counts {
		counts[i] /= 2
	}
}

func (p *prices) update() {
	fill(p.literal[:], p.literals[:])
	var codes [64]price
	fill(codes[:], p.literalLs[:])
	for n := range p.literalL {
		c := literalCode(uint32(n))
		p.literalL[n] = codes[c] + price(literalCodes[c].bits)<<8
	}
	fill(codes[:], p.matchLs[:])
	for n := minMatch; n < len(p.matchL); n++ {
		c := matchCode(uint32(n))
		p.matchL[n] = codes[c] + price(matchCodes[c].bits)<<8
	}
	fill(p.offset[:], p.offsets[:])
	for c := range p.offset {
		p.offset[c] += price(c) << 8
	}
}

// fill computes prices from counts: rare symbols cost more bits.
func fill(list []price, counts []uint32) {
	sum := 0.0
	for _, n := range counts {
		sum += float64(n) + 0.5
	}
	for i, n := range counts {
		list[i] = price(256 * math.Log2(sum/(float64(n)+0.5)))
	}
}
