package zstdenc

import "encoding/binary"

const (
	// blockSize is the maximum size of a zstd block.
	blockSize = 128 << 10

	// goodEnough is the length in bytes from which a match is used without a
	// search for a better one.
	goodEnough = 128

	// long is the length in bytes from which a match suppresses the search in the
	// far table: within the match, that search would find the same place again.
	long = 24

	// lookahead limits how many bytes are hashed. The finder does not look for
	// matches that start closer to the end of a block.
	lookahead = 16
)

// A block is a part of the input that passes through the encoder.
type block struct {
	start uint64 // position of its first byte
	size  int
	last  bool

	// The matches at byte i are all[first[i]:first[i+1]]. Each is longer and
	// farther back than the previous one.
	first []uint32
	all   []match
}

// A match is length bytes that are equal to those distance bytes before.
type match struct {
	distance, length uint32
}

// A table stores where bytes occurred in the input. A hash of the bytes selects
// a row, which has the latest place first. A place is a position modulo
// 1<<placeBits. The higher bits are a tag of other hash bits, which excludes most
// false places without reading the input. The finder compares every remaining
// place with the input.
type table struct {
	places    []uint32
	rowShift  uint // shift of a hash to the index of its row
	width     int  // places per row
	placeBits uint
}

func newTable(rowBits uint, width int, placeBits uint) table {
	places := make([]uint32, width<<rowBits)
	huge(places)
	return table{places, 64 - rowBits, width, placeBits}
}

// row returns the row of a hash, and the tag of the hash.
func (t *table) row(hash uint64) (row []uint32, tag uint32) {
	at := int(hash>>t.rowShift) * t.width
	return t.places[at : at+t.width : at+t.width], uint32(hash) << t.placeBits
}

func (t *table) place(pos uint64) uint32 { return uint32(pos) & (1<<t.placeBits - 1) }

func remember(row []uint32, place uint32) {
	copy(row[1:], row)
	row[0] = place
}

// A finder finds matches: short ones in the last 4 MiB and longer ones in the
// whole window. A short match that is farther back costs as many bits as it
// saves.
type finder struct {
	ring      ring
	window    uint64
	near, far table

	skip    int    // end of the last match that is good enough
	held    match  // the longest match of the previous byte, without that byte
	touched uint32 // so that the compiler keeps the reads that prefetch rows
}

// nearBytes is how many bytes the near table hashes. The far table hashes nine,
// and stores every other position. nearBits and farBits are how far back the
// places of each table reach, as a power of two.
const (
	nearBytes = 5
	nearBits  = 22
	farBits   = 27
)

func newFinder(r ring, window int) *finder {
	// The table has room for every position in the window that it stores.
	const width = 4
	rows := uint(14)
	for width<<rows < window/2 {
		rows++
	}
	return &finder{ring: r, window: uint64(window), near: newTable(17, 8, nearBits), far: newTable(rows, width, farBits)}
}

// prime is an odd constant with well-mixed bits for multiplicative hashing.
const prime = 0x9E3779B185EBCA87

// A spot is the finder's lookup for one position.
type spot struct {
	nearRow, farRow []uint32
	nearTag, farTag uint32
}

// group is how many positions are looked up together, so that the processor
// fetches their rows in parallel.
const group = 16

// find sets the block's matches.
func (f *finder) find(b *block) {
	b.all = b.all[:0]
	f.skip, f.held = 0, match{}
	var spots [group]spot
	for from := 0; from < b.size; from += group {
		n := min(group, b.size-from)
		ready := 0
		for ready < n && f.look(b, from+ready, &spots[ready]) {
			ready++
		}
		for i := range n {
			b.first[from+i] = uint32(len(b.all))
			if i < ready {
				f.at(b, from+i, &spots[i])
			}
		}
	}
	b.first[b.size] = uint32(len(b.all))
}

// look finds the rows of byte i of the block and prefetches them. It returns
// false if too few bytes follow to compute the hashes.
func (f *finder) look(b *block, i int, s *spot) bool {
	at := (b.start + uint64(i)) & f.ring.mask
	if b.size-i < lookahead || at+lookahead > uint64(len(f.ring.data)) {
		return false
	}
	word := binary.LittleEndian.Uint64(f.ring.data[at:])
	s.nearRow, s.nearTag = f.near.row(word << (64 - 8*nearBytes) * prime)
	s.farRow, s.farTag = f.far.row((word*prime ^ uint64(f.ring.data[at+8])) * prime)
	f.touched += s.nearRow[0] + s.farRow[0]
	return true
}

// at adds the matches at byte i of the block.
func (f *finder) at(b *block, i int, s *spot) {
	pos, left := b.start+uint64(i), b.size-i
	if i >= f.skip {
		before := len(b.all)
		best := f.search(b, s.nearRow, s.nearTag, &f.near, pos, left, minMatch)
		if f.held.length > 0 {
			f.held.length--
		}
		if f.held.length >= long {
			if int(f.held.length) > best {
				best = int(f.held.length)
				b.all = append(b.all, f.held)
			}
		} else if best < goodEnough {
			best = f.search(b, s.farRow, s.farTag, &f.far, pos, left, best)
		}
		if len(b.all) > before {
			if last := b.all[len(b.all)-1]; last.length > f.held.length {
				f.held = last
			}
		}
		if best >= goodEnough {
			f.skip, f.held.length = i+best, 0
		}
	}
	remember(s.nearRow, s.nearTag|f.near.place(pos))
	if pos%2 == 0 {
		remember(s.farRow, s.farTag|f.far.place(pos))
	}
}

// search adds the matches at pos from a row that are longer than best bytes. It
// returns the length of the longest.
func (f *finder) search(b *block, row []uint32, tag uint32, t *table, pos uint64, left, best int) int {
	data, mask := f.ring.data, f.ring.mask
	here := tag | t.place(pos)
	for _, place := range row {
		if (place^here)>>t.placeBits != 0 {
			continue
		}
		distance := uint64(t.place(uint64(here - place)))
		if distance == 0 || distance > f.window || distance > pos {
			continue
		}
		from := pos - distance
		if best < left && data[(from+uint64(best))&mask] != data[(pos+uint64(best))&mask] {
			continue
		}
		if n := f.ring.same(from, pos, left); n > best {
			best = n
			b.all = append(b.all, match{uint32(distance), uint32(n)})
			if n >= goodEnough {
				break
			}
		}
	}
	return best
}
