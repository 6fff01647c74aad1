package repair

import (
	"fmt"
	"io"
	"slices"

	"airlift/bundle/head"
)

// A view reads the file as it will be after the repair. What no copy has cannot be read.
type view struct {
	writer       *writer
	target       Copy
	damage       damage
	launcherFrom string
	launcher     []byte // of a copy, if the target's is damaged
	piece        int64  // the number of the piece in buf, plus 1
	buf          []byte
	content      []byte
}

// ReadAt implements io.ReaderAt. It is for one reader at a time.
func (v *view) ReadAt(b []byte, at int64) (n int, err error) {
	for n < len(b) && err == nil {
		var m int
		m, err = v.section(b[n:], at+int64(n))
		n += m
	}
	return n, err
}

// section reads from the section at an offset, at most to the section's end.
func (v *view) section(b []byte, at int64) (int, error) {
	begin, payload, end := v.writer.reference.launcher(), int64(v.writer.trailer.PayloadOffset), v.writer.trailer.DigestsOffset()
	switch {
	case at >= v.writer.size():
		return 0, io.EOF
	case at < begin && !v.damage.launcher:
		return v.target.ReadAt(b[:min(int64(len(b)), begin-at)], at)
	case at < begin && v.launcher == nil:
		return 0, v.lost("launcher")
	case at < begin:
		return copy(b, v.launcher[at:]), nil
	case at < payload:
		return copy(b, v.writer.header()[at-begin:]), nil
	case at < end:
		return v.fromPiece(b, at-payload)
	case at < end+int64(len(v.writer.frame)):
		return copy(b, v.writer.frame[at-end:]), nil
	}
	return copy(b, v.writer.trailer.Encode()[at-end-int64(len(v.writer.frame)):]), nil
}

// fromPiece reads at an offset in the payload.
func (v *view) fromPiece(b []byte, at int64) (int, error) {
	n := at / head.PieceSize
	if v.piece != n+1 {
		if err := v.fetch(n); err != nil {
			return 0, err
		}
	}
	return copy(b, v.content[at-n*head.PieceSize:]), nil
}

// fetch reads a piece of the target, or of the first copy that has it.
func (v *view) fetch(n int64) (err error) {
	if v.buf == nil {
		v.buf = make([]byte, head.PieceSize)
	}
	sources := []Copy{v.target}
	if slices.Contains(v.damage.pieces, n) {
		sources = v.writer.copies
	}
	for _, c := range sources {
		if v.content, err = v.writer.payload(c).ReadPiece(n, v.buf); err == nil {
			v.piece = n + 1
			return nil
		}
	}
	return v.lost(v.writer.reference.piece(n).String())
}

func (v *view) lost(what string) error { return fmt.Errorf("no copy has the %s intact", what) }
