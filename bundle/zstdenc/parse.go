package zstdenc

import (
	"math"
	"slices"
)

// A sequence is a run of literals and the match that follows it (3.1.1.3.2).
type sequence struct {
	literals    uint32 // Literals_Length
	match       uint32 // Match_Length
	offsetValue uint32 // Offset_Value: 1 to 3 for a repeat offset, otherwise the distance plus 3
}

// repeatOffsets are the three distances that a sequence can use again for few bits
// (3.1.1.5).
type repeatOffsets [3]uint32

// initialOffsets are those at the beginning of a frame.
var initialOffsets = repeatOffsets{1, 4, 8}

// distance returns the distance that Offset_Value k+1 means after a run of literals,
// or 0 if it means none. After no literals, the first offset would only continue the
// previous match, so the values have another meaning.
func (r repeatOffsets) distance(k, literals uint32) uint32 {
	switch {
	case literals > 0:
		return r[k]
	case k < 2:
		return r[k+1]
	}
	return r[0] - 1
}

// after returns the repeat offsets after a sequence with this Offset_Value and this many
// literals.
func (r repeatOffsets) after(value, literals uint32) repeatOffsets {
	if value > 3 {
		return repeatOffsets{value - 3, r[0], r[1]}
	}
	if literals == 0 {
		value++
	}
	switch value {
	case 1:
		return r
	case 2:
		return repeatOffsets{r[1], r[0], r[2]}
	case 3:
		return repeatOffsets{r[2], r[0], r[1]}
	}
	return repeatOffsets{r[0] - 1, r[0], r[1]}
}

// A step is the cheapest known encoding of the block up to a byte. It has only the last
// literal or match of this encoding; the steps before it have the others.
type step struct {
	price       price
	match       uint32 // length of the match that ends here; 0: a literal
	offsetValue uint32 // of that match
	literals    uint32 // length of the run of literals that ends here
	repeats     repeatOffsets
}

// A parser chooses among the matches of a block so that the result is small. This is the
// search for the shortest path from the block's first byte to its end. Literals and matches
// are the edges.
type parser struct {
	ring    ring
	window  uint64
	prices  *prices
	repeats repeatOffsets // after the block that was parsed last
	steps   []step

	literals  []byte     // of the block that was parsed last
	sequences []sequence // of the same block
}

func newParser(r ring, window int) *parser {
	return &parser{
		ring: r, window: uint64(window), prices: newPrices(),
		repeats: initialOffsets,
		steps:   make([]step, blockSize+1),
	}
}

// parse sets literals and sequences to the encoding of the block.
func (p *parser) parse(b *block) {
	if b.start == 0 {
		// There are no counts yet, so the first block is encoded twice.
		before := p.repeats
		p.findCheapest(b)
		p.collect(b)
		p.prices.count(p.literals, p.sequences)
		p.repeats = before
	}
	p.findCheapest(b)
	p.collect(b)
	p.prices.count(p.literals, p.sequences)
}

// findCheapest sets the steps to the cheapest encoding of the block.
func (p *parser) findCheapest(b *block) {
	pr := p.prices
	steps := p.steps[:b.size+1]
	for i := range steps {
		steps[i].price = math.MaxInt32
	}
	steps[0] = step{price: pr.literalsLength[0], repeats: p.repeats}
	for i := 0; i < b.size; {
		s := &steps[i]
		setRepeats(steps, i)
		pos := b.start + uint64(i)

		withLiteral := s.price + pr.literal[p.ring.data[pos&p.ring.mask]] + pr.literalsLength[s.literals+1] - pr.literalsLength[s.literals]
		if next := &steps[i+1]; withLiteral <= next.price {
			next.price, next.match, next.literals = withLiteral, 0, s.literals+1
		}
		left := b.size - i
		base := s.price + pr.literalsLength[0] // the next run of literals begins after the match
		nice, niceValue := 0, uint32(0)        // the longest match of at least niceLength bytes

		for k := range uint32(3) {
			distance := s.repeats.distance(k, s.literals)
			if distance == 0 || uint64(distance) > pos || uint64(distance) > p.window {
				continue
			}
			n := p.ring.matchLength(pos-uint64(distance), pos, left)
			if n < minMatch {
				continue
			}
			if n >= niceLength && n > nice {
				nice, niceValue = n, k+1
			}
			offerMatches(steps[i:], minMatch, n, base+pr.offset[offsetCode(k+1)], k+1, pr)
		}
		from := minMatch
		for _, m := range b.all[b.first[i]:b.first[i+1]] {
			value, n := m.distance+3, int(m.length)
			if n >= niceLength && n > nice {
				nice, niceValue = n, value
			}
			offerMatches(steps[i:], from, n, base+pr.offset[offsetCode(value)], value, pr)
			from = n + 1
		}
		if nice == 0 {
			i++
			continue
		}
		offerMatches(steps[i:], nice, nice, base+pr.offset[offsetCode(niceValue)], niceValue, pr)
		i += nice
	}
	setRepeats(steps, b.size)
}

// everyLength is the length of a match up to which every shorter length is tried as well. Of
// a longer match, also the whole length is tried.
const everyLength = 64

// offerMatches updates the steps that a match of n bytes at steps[0] leads to, if it is
// cheaper, with each length from from on. base is the price without the length.
func offerMatches(steps []step, from, n int, base price, value uint32, pr *prices) {
	offer := func(length int) {
		s := &steps[length]
		if cost := base + pr.matchLength[length]; cost < s.price {
			s.price, s.match, s.offsetValue, s.literals = cost, uint32(length), value, 0
		}
	}
	for length := from; length <= min(n, everyLength); length++ {
		offer(length)
	}
	if n > everyLength {
		offer(n)
	}
}

// setRepeats sets the repeat offsets of step i, whose price is final.
func setRepeats(steps []step, i int) {
	s := &steps[i]
	switch {
	case i == 0:
	case s.match == 0:
		s.repeats = steps[i-1].repeats
	default:
		from := &steps[i-int(s.match)]
		s.repeats = from.repeats.after(s.offsetValue, from.literals)
	}
}

// collect follows the steps back from the end and sets literals and sequences.
func (p *parser) collect(b *block) {
	p.literals, p.sequences = p.literals[:0], p.sequences[:0]
	p.repeats = p.steps[b.size].repeats
	for i := b.size; i > 0; {
		s := p.steps[i]
		if s.match == 0 {
			i--
			continue
		}
		i -= int(s.match)
		p.sequences = append(p.sequences, sequence{p.steps[i].literals, s.match, s.offsetValue})
	}
	slices.Reverse(p.sequences)
	at := b.start
	for _, s := range p.sequences {
		p.addLiterals(at, int(s.literals))
		at += uint64(s.literals + s.match)
	}
	p.addLiterals(at, int(b.start+uint64(b.size)-at))
}

func (p *parser) addLiterals(at uint64, n int) {
	from := p.ring.data[at&p.ring.mask:]
	if n > len(from) {
		p.literals = append(p.literals, from...)
		n -= len(from)
		from = p.ring.data
	}
	p.literals = append(p.literals, from[:n]...)
}
