package zstdenc

import "math"

// A price is a number of bits, times 256.
type price = int32

// prices estimate the cost of each symbol from its recent frequency. The tables of a block are not
// known before its sequences are chosen, so the tables of earlier blocks are used.
type prices struct {
	// How often each literal and each code occurred, recent blocks counting more.
	literals        [256]uint32
	literalsLengths [36]uint32
	matchLengths    [53]uint32
	offsets         [maxOffsetCode + 1]uint32

	// The prices that follow from these counts.
	literal        [256]price
	literalsLength [blockSize + 1]price
	matchLength    [blockSize + 1]price
	offset         [maxOffsetCode + 1]price // by code, including the additional bits
}

// newPrices returns prices for the beginning of a frame: short lengths are cheaper.
func newPrices() *prices {
	p := new(prices)
	for i := range p.literals {
		p.literals[i] = 4
	}
	for i := range p.literalsLengths {
		p.literalsLengths[i] = uint32(max(1, 24-i))
	}
	for i := range p.matchLengths {
		p.matchLengths[i] = uint32(max(1, 24-i))
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
	halve(p.literalsLengths[:])
	halve(p.matchLengths[:])
	halve(p.offsets[:])
	for _, c := range literals {
		p.literals[c]++
	}
	for _, s := range list {
		p.literalsLengths[literalsLengthCode(s.literals)]++
		p.matchLengths[matchLengthCode(s.match)]++
		p.offsets[offsetCode(s.offsetValue)]++
	}
	p.update()
}

func halve(counts []uint32) {
	for i := range counts {
		counts[i] /= 2
	}
}

// update computes the prices from the counts.
func (p *prices) update() {
	fill(p.literal[:], p.literals[:])
	var codes [64]price
	fill(codes[:], p.literalsLengths[:])
	for n := range p.literalsLength {
		c := literalsLengthCode(uint32(n))
		p.literalsLength[n] = codes[c] + price(literalsLengthCodes[c].bits)<<8
	}
	fill(codes[:], p.matchLengths[:])
	for n := minMatch; n < len(p.matchLength); n++ {
		c := matchLengthCode(uint32(n))
		p.matchLength[n] = codes[c] + price(matchLengthCodes[c].bits)<<8
	}
	fill(p.offset[:], p.offsets[:])
	for c := range p.offset {
		p.offset[c] += price(c) << 8
	}
}

// fill computes prices from counts: the logarithm of the inverse frequency. A symbol that
// never occurred has half a count.
func fill(list []price, counts []uint32) {
	sum := 0.0
	for _, n := range counts {
		sum += float64(n) + 0.5
	}
	for i, n := range counts {
		list[i] = price(256 * math.Log2(sum/(float64(n)+0.5)))
	}
}
