package zstdenc

import "encoding/binary"

const (
	// blockSize is the format's Block_Maximum_Size (3.1.1.2.4).
	blockSize = 128 << 10

	// niceLength is the length in bytes from which a match is used without a search for
	// a better one.
	niceLength = 128

	// longLength is the length in bytes from which a match suppresses the search in the
	// far table: within the match, that search would find the same place again.
	longLength = 24

	// lookahead is how many bytes must follow a position for a lookup. It is at least the
	// number of bytes that are hashed.
	lookahead = 16
)

// A block is a part of the input that passes through the stages.
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

// A table is a hash table of where bytes occurred in the input. A hash of the bytes selects
// a row. A row has the latest entries, the newest first.
//
// The low positionBits of an entry are the low bits of a position. The higher bits are a tag: other
// bits of the hash. A tag excludes most entries of other bytes without reading the input. The
// finder compares what the remaining entries point to.
type table struct {
	entries      []uint32
	rowShift     uint // shift of a hash to the index of its row
	width        int  // entries per row
	positionBits uint
}

func newTable(rowBits uint, width int, positionBits uint) table {
	entries := make([]uint32, width<<rowBits)
	useHugePages(entries)
	return table{entries, 64 - rowBits, width, positionBits}
}

// row returns the row of a hash, and the tag of the hash.
func (t *table) row(hash uint64) (row []uint32, tag uint32) {
	at := int(hash>>t.rowShift) * t.width
	return t.entries[at : at+t.width : at+t.width], uint32(hash) << t.positionBits
}

// position returns the position bits of an entry or of a position.
func (t *table) position(v uint32) uint32 { return v & (1<<t.positionBits - 1) }

func insert(row []uint32, entry uint32) {
	copy(row[1:], row)
	row[0] = entry
}

// A finder finds matches: short ones in the last 4 MiB and longer ones in the whole window.
// A short match that is farther back costs as many bits as it saves.
type finder struct {
	ring      ring
	window    uint64
	near, far table

	skipTo     int    // end of the last nice match; no searches before it
	previous   match  // the longest match of the previous byte, without that byte
	prefetched uint32 // so that the compiler keeps the reads that prefetch rows
}

// The near table hashes nearBytes bytes of every position. The far table hashes nine bytes,
// of every other position. Positions in the tables have nearBits and farBits, which is how
// far back they reach.
const (
	nearBytes = 5
	nearBits  = 22
	farBits   = 27 // of MaxWindow
)

func newFinder(r ring, window int) *finder {
	// The far table has room for every other position in the window.
	const width = 4
	rows := uint(14)
	for width<<rows < window/2 {
		rows++
	}
	return &finder{ring: r, window: uint64(window), near: newTable(17, 8, nearBits), far: newTable(rows, width, farBits)}
}

// prime is an odd constant with well-mixed bits for multiplicative hashing.
const prime = 0x9E3779B185EBCA87

// A lookup has the rows and tags of one position.
type lookup struct {
	nearRow, farRow []uint32
	nearTag, farTag uint32
}

// group is how many positions are looked up together, so that the processor fetches their
// rows in parallel.
const group = 16

// find sets the block's matches.
func (f *finder) find(b *block) {
	b.all = b.all[:0]
	f.skipTo, f.previous = 0, match{}
	var lookups [group]lookup
	for from := 0; from < b.size; from += group {
		n := min(group, b.size-from)
		ready := 0
		for ready < n && f.lookUp(b, from+ready, &lookups[ready]) {
			ready++
		}
		for i := range n {
			b.first[from+i] = uint32(len(b.all))
			if i < ready {
				f.findAt(b, from+i, &lookups[i])
			}
		}
	}
	b.first[b.size] = uint32(len(b.all))
}

// lookUp finds the rows of byte i of the block and prefetches them. It returns false if too
// few bytes follow, in the block or in the ring.
func (f *finder) lookUp(b *block, i int, l *lookup) bool {
	at := (b.start + uint64(i)) & f.ring.mask
	if b.size-i < lookahead || at+lookahead > uint64(len(f.ring.data)) {
		return false
	}
	word := binary.LittleEndian.Uint64(f.ring.data[at:])
	l.nearRow, l.nearTag = f.near.row(word << (64 - 8*nearBytes) * prime)
	l.farRow, l.farTag = f.far.row((word*prime ^ uint64(f.ring.data[at+8])) * prime)
	f.prefetched += l.nearRow[0] + l.farRow[0]
	return true
}

// findAt adds the matches at byte i of the block, and the position to the tables.
func (f *finder) findAt(b *block, i int, l *lookup) {
	pos, left := b.start+uint64(i), b.size-i
	if i >= f.skipTo {
		before := len(b.all)
		best := f.search(b, l.nearRow, l.nearTag, &f.near, pos, left, minMatch)
		if f.previous.length > 0 {
			f.previous.length--
		}
		if f.previous.length >= longLength {
			if int(f.previous.length) > best {
				best = int(f.previous.length)
				b.all = append(b.all, f.previous)
			}
		} else if best < niceLength {
			best = f.search(b, l.farRow, l.farTag, &f.far, pos, left, best)
		}
		if len(b.all) > before {
			if last := b.all[len(b.all)-1]; last.length > f.previous.length {
				f.previous = last
			}
		}
		if best >= niceLength {
			f.skipTo, f.previous.length = i+best, 0
		}
	}
	insert(l.nearRow, l.nearTag|f.near.position(uint32(pos)))
	if pos%2 == 0 {
		insert(l.farRow, l.farTag|f.far.position(uint32(pos)))
	}
}

// search adds the matches at pos from a row that are longer than best bytes. It returns the
// length of the longest.
func (f *finder) search(b *block, row []uint32, tag uint32, t *table, pos uint64, left, best int) int {
	data, mask := f.ring.data, f.ring.mask
	here := tag | t.position(uint32(pos))
	for _, entry := range row {
		if (entry^here)>>t.positionBits != 0 {
			continue // another tag
		}
		distance := uint64(t.position(here - entry))
		if distance == 0 || distance > f.window || distance > pos {
			continue
		}
		from := pos - distance
		// Read one byte first: a longer match has an equal byte here.
		if best < left && data[(from+uint64(best))&mask] != data[(pos+uint64(best))&mask] {
			continue
		}
		if n := f.ring.matchLength(from, pos, left); n > best {
			best = n
			b.all = append(b.all, match{uint32(distance), uint32(n)})
			if n >= niceLength {
				break
			}
		}
	}
	return best
}
