package zstdenc

import "math"

// A sequence is a run of literals and the match that follows it, as in zstd.
type sequence struct {
	literals uint32 // length of the run
	match    uint32 // length of the match
	offset   uint32 // 1 to 3: one of the three recent distances; otherwise the distance plus 3
}

// recent are the last three distances, which need few bits.
type recent [3]uint32

// after returns the recent distances after a match with this offset that
// follows a run of literals (RFC 8878, 3.1.1.5).
func (r recent) after(offset, literals uint32) recent {
	if offset > 3 {
		return recent{offset - 3, r[0], r[1]}
	}
	if literals == 0 {
		offset++
	}
	switch offset {
	case 1:
		return r
	case 2:
		return recent{r[1], r[0], r[2]}
	case 3:
		return recent{r[2], r[0], r[1]}
	}
	return recent{r[0] - 1, r[0], r[1]}
}

// A step is the cheapest way to encode the block up to a byte.
type step struct {
	price    price
	match    uint32 // length of the match that ends here; 0: a literal
	offset   uint32 // as in sequence.offset
	literals uint32 // length of the run that ends here
	recent   recent
}

// A parser chooses matches of a block so that the result is small.
type parser struct {
	ring   ring
	window uint64
	prices *prices
	recent recent
	steps  []step

	literals  []byte
	sequences []sequence
}

func newParser(r ring, window int) *parser {
	return &parser{
		ring: r, window: uint64(window), prices: newPrices(),
		recent: recent{1, 4, 8}, // initial values of a frame
		steps:  make([]step, blockSize+1),
	}
}

// parse sets literals and sequences to the encoding of the block.
func (p *parser) parse(b *block) {
	if b.start == 0 {
		// There are no counts yet, so the first block is encoded twice.
		before := p.recent
		p.walk(b)
		p.collect(b)
		p.prices.count(p.literals, p.sequences)
		p.recent = before
	}
	p.walk(b)
	p.collect(b)
	p.prices.count(p.literals, p.sequences)
}

// walk finds the cheapest encoding of the block.
func (p *parser) walk(b *block) {
	pr := p.prices
	steps := p.steps[:b.size+1]
	for i := range steps {
		steps[i].price = math.MaxInt32
	}
	steps[0] = step{price: pr.literalL[0], recent: p.recent}
	for i := 0; i < b.size; {
		s := &steps[i]
		p.settle(steps, i)
		pos := b.start + uint64(i)

		more := s.price + pr.literal[p.ring.data[pos&p.ring.mask]] + pr.literalL[s.literals+1] - pr.literalL[s.literals]
		if next := &steps[i+1]; more <= next.price {
			next.price, next.match, next.literals = more, 0, s.literals+1
		}
		left := b.size - i
		base := s.price + pr.literalL[0]
		take, takeOffset := 0, uint32(0) // match that is used without a further search

		for k := range uint32(3) {
			distance := uint32(0)
			switch {
			case s.literals > 0:
				distance = s.recent[k]
			case k < 2:
				distance = s.recent[k+1]
			default:
				distance = s.recent[0] - 1
			}
			if distance == 0 || uint64(distance) > pos || uint64(distance) > p.window {
				continue
			}
			n := p.ring.same(pos-uint64(distance), pos, left)
			if n < minMatch {
				continue
			}
			if n >= goodEnough && n > take {
				take, takeOffset = n, k+1
			}
			reach(steps[i:], minMatch, n, base+pr.offset[offsetCode(k+1)], k+1, pr)
		}
		from := minMatch
		for _, m := range b.all[b.first[i]:b.first[i+1]] {
			offset, n := m.distance+3, int(m.length)
			if n >= goodEnough && n > take {
				take, takeOffset = n, offset
			}
			reach(steps[i:], from, n, base+pr.offset[offsetCode(offset)], offset, pr)
			from = n + 1
		}
		if take == 0 {
			i++
			continue
		}
		reach(steps[i:], take, take, base+pr.offset[offsetCode(takeOffset)], takeOffset, pr)
		i += take
	}
	p.settle(steps, b.size)
}

// longest is the maximum length up to which every length of a match is tried.
const longest = 64

// reach updates the steps that a match leads to, for each match length from
// from to n.
func reach(steps []step, from, n int, base price, offset uint32, pr *prices) {
	offer := func(length int) {
		s := &steps[length]
		if cost := base + pr.matchL[length]; cost < s.price {
			s.price, s.match, s.offset, s.literals = cost, uint32(length), offset, 0
		}
	}
	for length := from; length <= min(n, longest); length++ {
		offer(length)
	}
	if n > longest {
		offer(n)
	}
}

// settle sets the recent distances of a step whose price is final.
func (p *parser) settle(steps []step, i int) {
	s := &steps[i]
	switch {
	case i == 0:
	case s.match == 0:
		s.recent = steps[i-1].recent
	default:
		from := &steps[i-int(s.match)]
		s.recent = from.recent.after(s.offset, from.literals)
	}
}

// collect follows the steps back from the end and collects literals and
// sequences.
func (p *parser) collect(b *block) {
	p.literals, p.sequences = p.literals[:0], p.sequences[:0]
	p.recent = p.steps[b.size].recent
	for i := b.size; i > 0; {
		s := p.steps[i]
		if s.match == 0 {
			i--
			continue
		}
		i -= int(s.match)
		p.sequences = append(p.sequences, sequence{p.steps[i].literals, s.match, s.offset})
	}
	for i, j := 0, len(p.sequences)-1; i < j; i, j = i+1, j-1 {
		p.sequences[i], p.sequences[j] = p.sequences[j], p.sequences[i]
	}
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
