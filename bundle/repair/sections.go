package repair

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"iter"

	"airlift/bundle/head"
)

// A reference determines every byte of a bundle.
type reference struct {
	trailer head.Trailer
	frame   []byte // with the digests
	own     bool   // the trailer is the target's
}

// The sections of a bundle. Each is compared, and repaired, as a whole.
const (
	launcher = "launcher"
	header   = "header"
	payload  = "payload" // one piece
	digests  = "digests"
	trailer  = "trailer"
)

// maxLauncher is the largest launcher, because it is in memory.
const maxLauncher = 512 << 20

func (r reference) size() int64 { return int64(r.trailer.FileSize()) }

func (r reference) payload(c io.ReaderAt) *head.Payload {
	return head.NewPayload(c, r.trailer, r.frame)
}

func (r reference) section(at int64) Range {
	begin, end := int64(r.trailer.PayloadOffset), r.trailer.DigestsOffset()
	switch tail := r.size() - head.TrailerSize; {
	case at < begin-head.HeaderSize:
		return Range{First: 0, Last: begin - head.HeaderSize - 1, What: launcher}
	case at < begin:
		return Range{First: begin - head.HeaderSize, Last: begin - 1, What: header}
	case at < end:
		first := begin + (at-begin)/head.PieceSize*head.PieceSize
		return Range{First: first, Last: min(first+head.PieceSize, end) - 1, What: payload}
	case at < tail:
		return Range{First: end, Last: tail - 1, What: digests}
	default:
		return Range{First: tail, Last: r.size() - 1, What: trailer}
	}
}

func (r reference) sections() iter.Seq[Range] {
	return func(yield func(Range) bool) {
		for at := int64(0); at < r.size(); {
			s := r.section(at)
			if !yield(s) {
				return
			}
			at = s.Last + 1
		}
	}
}

// known returns the content of a section that follows from the reference, or nil.
func (r reference) known(s Range) []byte {
	switch s.What {
	case header:
		return head.Header{FileSize: r.trailer.FileSize()}.Encode()
	case digests:
		return r.frame
	case trailer:
		return r.trailer.Encode()
	}
	return nil
}

// read returns the content of a section in a copy, or nil if it cannot be read or differs from the reference.
func (r reference) read(c Copy, s Range) []byte {
	if s.What == payload {
		piece, err := r.payload(c).ReadPiece((s.First-int64(r.trailer.PayloadOffset))/head.PieceSize, make([]byte, head.PieceSize))
		if err != nil {
			return nil
		}
		return piece
	}
	b := make([]byte, s.Len())
	if _, err := c.ReadAt(b, s.First); err != nil {
		return nil
	}
	intact := bytes.Equal(b, r.known(s))
	switch s.What {
	case launcher:
		intact = sha256.Sum256(b) == r.trailer.LauncherSHA256
	case digests:
		intact = intact && r.trailer.HasDigests(r.frame) // the frame of a scan is the file's own
	}
	if !intact {
		return nil
	}
	return b
}

// find returns the content of a section, and the first copy that has it, if it does not follow from
// the reference. It returns nil if no copy has it.
func (r reference) find(s Range, copies []Copy) (b []byte, from string) {
	if b := r.known(s); b != nil {
		return b, ""
	}
	for _, c := range copies {
		if b := r.read(c, s); b != nil {
			return b, c.Name
		}
	}
	return nil, ""
}

// survey returns the sections of a copy that differ from the reference, in order. What cannot be read
// is damaged. compared is called with the number of bytes that were compared.
func (r reference) survey(ctx context.Context, c Copy, compared func(n int64)) (damaged []Range, err error) {
	if first := r.section(0); first.What == launcher && first.Len() > maxLauncher {
		return nil, fmt.Errorf("the launcher has %d bytes, more than the %d allowed", first.Len(), maxLauncher)
	}
	for s := range r.sections() {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if r.read(c, s) == nil {
			damaged = append(damaged, s)
		}
		compared(s.Len())
	}
	return damaged, nil
}

// A view reads the file as it will be after the repair. What no copy has cannot be read. It is for
// one reader at a time.
type view struct {
	reference
	target  Copy
	copies  []Copy
	damaged map[Range]bool
	current Range
	content []byte // of the current section
}

// ReadAt implements io.ReaderAt.
func (v *view) ReadAt(b []byte, at int64) (n int, err error) {
	for n < len(b) {
		if at+int64(n) >= v.size() {
			return n, io.EOF
		}
		if s := v.section(at + int64(n)); v.content == nil || s != v.current {
			from := v.copies
			if !v.damaged[s] {
				from = []Copy{v.target}
			}
			if v.content, _ = v.find(s, from); v.content == nil {
				return n, fmt.Errorf("no copy has the %s intact", s)
			}
			v.current = s
		}
		n += copy(b[n:], v.content[at+int64(n)-v.current.First:])
	}
	return n, nil
}
