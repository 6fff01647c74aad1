package squeeze

import "encoding/binary"

const (
	// blockSize is the most that a zstd block may hold.
	blockSize = 128 << 10

	// goodEnough is the length in bytes from which on a match is taken without
	// looking for a better way.
	goodEnough = 128

	// long is the length in bytes of a match worth following: within it nothing
	// is looked for far away, as the same place would be found again.
	long = 24

	// lookahead is how many bytes are hashed at most, and so how near to a
	// block's end matches are looked for.
	lookahead = 16
)

// A block is a part of the input on its way through the encoder.
type block struct {
	start uint64 // position of its first byte
	size  int
	last  bool

	// matches found at byte i are all[first[i]:first[i+1]], each longer and
	// farther than the one before.
	first []uint32
	all   []match
}

// A match says that from here on length bytes are as distance bytes before.
type match struct {
	distance, length uint32
}

// A table remembers in rows, by a hash of the bytes that stand there, where in
// the input something stood: the latest places first. A place is a position
// modulo 1<<placeBits, below a tag of further bits of the hash that tells most
// strangers apart without a look at the input. Whatever else a place may turn
// out to be, it is compared with the input before it is believed.
type table struct {
	places    []uint32
	rowShift  uint // from a hash to its row
	width     int  // places in a row
	placeBits uint
}

func newTable(rowBits uint, width int, placeBits uint) table {
	places := make([]uint32, width<<rowBits)
	huge(places)
	return table{places, 64 - rowBits, width, placeBits}
}

// row returns the row of a hash, and what a place of it at position 0 looks like.
func (t *table) row(hash uint64) (row []uint32, tag uint32) {
	at := int(hash>>t.rowShift) * t.width
	return t.places[at : at+t.width : at+t.width], uint32(hash) << t.placeBits
}

func (t *table) place(pos uint64) uint32 { return uint32(pos) & (1<<t.placeBits - 1) }

func remember(row []uint32, place uint32) {
	copy(row[1:], row)
	row[0] = place
}

// A finder looks for matches: short ones in the last 4 MiB, as farther away they
// cost as much as what they replace, and longer ones in the whole window.
type finder struct {
	ring      ring
	window    uint64
	near, far table

	skip    int    // up to where in the block a match that is good enough reaches
	held    match  // the longest one of the byte before, less that byte
	touched uint32 // keeps the compiler from leaving out reads that fetch
}

// How many bytes are hashed, and how far back the places of each table go, as a
// power of two. The far table hashes nine, and remembers every other position.
const (
	nearBytes = 5
	nearBits  = 22
	farBits   = 27
)

func newFinder(r ring, window int) *finder {
	// Room for every position of the window that is remembered.
	const width = 4
	rows := uint(14)
	for width<<rows < window/2 {
		rows++
	}
	return &finder{ring: r, window: uint64(window), near: newTable(17, 8, nearBits), far: newTable(rows, width, farBits)}
}

// An odd number with its bits well mixed, to multiply by.
const prime = 0x9E3779B185EBCA87

// A spot is what the finder looks up for one position.
type spot struct {
	nearRow, farRow []uint32
	nearTag, farTag uint32
}

// group is how many positions are looked up together, so that the processor
// fetches their rows side by side instead of waiting for one after the other.
const group = 16

// find fills in the block's matches.
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

// look finds the rows of byte i of the block and has them fetched. It returns
// false where too little follows to be hashed.
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

// at looks for matches at byte i of the block.
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

// search adds the places of a row where more than best bytes are as at pos, and
// returns how many are.
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
