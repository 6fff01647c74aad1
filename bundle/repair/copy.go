package repair

import (
	"fmt"
	"io"

	"airlift/bundle/head"
)

// A Copy is a bundle file, perhaps damaged or incomplete. It may consist of parts.
type Copy struct {
	Name string
	Size int64 // in bytes
	io.ReaderAt
}

// A Range is a section of the file.
type Range struct {
	First, Last int64  // offsets in the file
	What        string // "launcher", "header", "payload", "digests" or "trailer"
	From        string // name of the copy that repaired it, or ""
}

// Len is the number of bytes.
func (r Range) Len() int64 { return r.Last - r.First + 1 }

func (r Range) String() string {
	return fmt.Sprintf("bytes %d to %d (%s)", r.First, r.Last, r.What)
}

// add appends r, or extends the last range.
func add(list []Range, r Range) []Range {
	if n := len(list); n > 0 && list[n-1].Last+1 == r.First && list[n-1].What == r.What && list[n-1].From == r.From {
		list[n-1].Last = r.Last
		return list
	}
	return append(list, r)
}

// trailerBefore returns the trailer that ends at the offset end.
func (c Copy) trailerBefore(end int64) (t head.Trailer, ok bool) {
	if end < head.TrailerSize || end > c.Size {
		return t, false
	}
	var b [head.TrailerSize]byte
	if _, err := c.ReadAt(b[:], end-head.TrailerSize); err != nil {
		return t, false
	}
	t, err := head.DecodeTrailer(b[:])
	return t, err == nil && t.FileSize() != 0
}

// trailer returns the trailer at the end of the file. If data was appended, the size of
// another file may have its position.
func (c Copy) trailer(others []Copy) (t head.Trailer, ok bool) {
	if t, ok = c.trailerBefore(c.Size); ok {
		return t, true
	}
	for _, o := range others {
		if t, ok = c.trailerBefore(o.Size); ok && int64(t.FileSize()) == o.Size {
			return t, true
		}
	}
	return head.Trailer{}, false
}

// digests reads the frame with the digests, which may be damaged.
func (c Copy) digests(t head.Trailer) (frame []byte, ok bool) {
	size := int64(head.DigestsSize(t.PayloadSize))
	if c.Size-size < t.DigestsOffset() {
		return nil, false
	}
	frame = make([]byte, size)
	_, err := c.ReadAt(frame, t.DigestsOffset())
	return frame, err == nil
}
