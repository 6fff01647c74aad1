package zstdenc

import "math/bits"

// A bitWriter appends bits to bytes, the lowest bit first. This serves FSE tables, which
// decoders read from the beginning, and bitstreams, which they read from the end (4.1).
type bitWriter struct {
	out   []byte
	bits  uint64
	count uint
}

// add appends the low n bits of v. n is at most 32.
func (w *bitWriter) add(v uint32, n uint) {
	w.bits |= uint64(v) & (1<<n - 1) << w.count
	w.count += n
	for w.count >= 8 {
		w.out = append(w.out, byte(w.bits))
		w.bits >>= 8
		w.count -= 8
	}
}

// end completes the last byte with zeros.
func (w *bitWriter) end() {
	if w.count > 0 {
		w.out = append(w.out, byte(w.bits))
	}
	w.bits, w.count = 0, 0
}

// An fseTable encodes symbols with finite state entropy (4.1). A table of 1<<log states has
// its states at 1<<log to 2<<log-1, so that a state's low log bits are what is written.
type fseTable struct {
	log     uint
	next    []uint16 // states, sorted by symbol
	symbols [64]struct {
		// (state + deltaBits) >> 16 is the number of bits to write.
		deltaBits uint32
		// The remaining bits of the state + deltaState are the index in next.
		deltaState int32
	}
}

// normalize scales the counts, whose sum is total, to a sum of 1<<log. Every symbol that
// occurs gets at least 1, so the format's "less than 1" probability is not used. At least two
// symbols must occur, and at most 1<<log.
func normalize(counts []uint32, total uint32, log uint) []int {
	size := 1 << log
	norm := make([]int, len(counts))
	left := size
	for i, n := range counts {
		if n > 0 {
			norm[i] = max(1, int((uint64(n)*uint64(size)+uint64(total)/2)/uint64(total)))
			left -= norm[i]
		}
	}
	// Correct the rounding error one by one, each time for the symbol where the
	// change saves the most bits or costs the fewest.
	for ; left != 0; left -= sign(left) {
		best, gain := -1, 0.0
		for i, n := range counts {
			if n == 0 || left < 0 && norm[i] == 1 {
				continue
			}
			// g is how many bits the step from norm to norm±1 saves.
			g := float64(n) * float64(sign(left)) / (float64(norm[i]) + 0.5*float64(sign(left)))
			if best < 0 || g > gain {
				best, gain = i, g
			}
		}
		norm[best] += sign(left)
	}
	return norm
}

func sign(n int) int {
	if n < 0 {
		return -1
	}
	return 1
}

// build builds the table for the normalized counts. It spreads the symbols over the states as
// a decoder does (4.1.1).
func (t *fseTable) build(norm []int, log uint) {
	size := 1 << log
	t.log = log
	spread := make([]uint8, size)
	pos, stride := 0, size>>1+size>>3+3
	for s, n := range norm {
		for range n {
			spread[pos] = uint8(s)
			pos = (pos + stride) & (size - 1)
		}
	}
	var first [65]int
	for s, n := range norm {
		first[s+1] = first[s] + n
	}
	for s, n := range norm {
		if n == 0 {
			continue
		}
		most := log // bits that are written for the symbol's lower states
		if n > 1 {
			most = log - uint(bits.Len(uint(n-1))-1)
		}
		t.symbols[s].deltaBits = uint32(most<<16) - uint32(n<<most)
		t.symbols[s].deltaState = int32(first[s] - n)
	}
	t.next = append(t.next[:0], make([]uint16, size)...)
	for state, s := range spread {
		t.next[first[s]] = uint16(size + state)
		first[s]++
	}
}

// initialState returns the state that encodes the last symbol. Encoding begins there, because
// a decoder reads backwards.
func (t *fseTable) initialState(symbol uint8) uint32 {
	s := &t.symbols[symbol]
	n := (s.deltaBits + 1<<15) >> 16
	return uint32(t.next[int32((n<<16-s.deltaBits)>>n)+s.deltaState])
}

// encode writes bits of the state and returns the state for the symbol that precedes.
func (t *fseTable) encode(w *bitWriter, state uint32, symbol uint8) uint32 {
	s := &t.symbols[symbol]
	n := (state + s.deltaBits) >> 16
	w.add(state, uint(n))
	return uint32(t.next[int32(state>>n)+s.deltaState])
}

// appendTable appends the description of a table, the normalized counts (4.1.1). Each is
// written as count+1, in one bit less where the remaining sum allows it.
func appendTable(out []byte, norm []int, log uint) []byte {
	w := bitWriter{out: out}
	w.add(uint32(log-5), 4)
	remaining, threshold, width := 1<<log+1, 1<<log, log+1
	for s := 0; remaining > 1; s++ {
		value, spare := norm[s]+1, 2*threshold-1-remaining
		n := width
		if value < spare {
			n--
		} else if value >= threshold {
			value += spare
		}
		w.add(uint32(value), n)
		remaining -= norm[s]
		for remaining < threshold {
			width--
			threshold >>= 1
		}
		if norm[s] > 0 {
			continue
		}
		// A zero is followed by the number of further zeros, in groups of two bits. A
		// group of 3 means that another group follows.
		zeros := 0
		for norm[s+1+zeros] == 0 {
			zeros++
		}
		s += zeros
		for ; zeros >= 3; zeros -= 3 {
			w.add(3, 2)
		}
		w.add(uint32(zeros), 2)
	}
	w.end()
	return w.out
}
