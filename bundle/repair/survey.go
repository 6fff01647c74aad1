package repair

import (
	"bytes"
	"context"
	"crypto/sha256"
	"io"

	"airlift/bundle/head"
)

// A reference determines every byte of a bundle.
type reference struct {
	trailer head.Trailer
	frame   []byte // with the digests
	own     bool   // the trailer is the target's
}

func (r reference) size() int64     { return int64(r.trailer.FileSize()) }
func (r reference) launcher() int64 { return int64(r.trailer.PayloadOffset) - head.HeaderSize }
func (r reference) payload(c io.ReaderAt) *head.Payload {
	return head.NewPayload(c, r.trailer, r.frame)
}
func (r reference) header() []byte { return head.Header{FileSize: r.trailer.FileSize()}.Encode() }

// piece is the range of a piece of the payload.
func (r reference) piece(n int64) Range {
	first := int64(r.trailer.PayloadOffset) + n*head.PieceSize
	return Range{First: first, Last: min(first+head.PieceSize, r.trailer.DigestsOffset()) - 1, What: "payload"}
}

// damage lists what differs from the reference.
type damage struct {
	launcher, header, digests, trailer bool
	pieces                             []int64 // in order
}

// ranges lists the damage in the order of the file.
func (r reference) ranges(d damage) (list []Range) {
	if d.launcher {
		list = append(list, Range{Last: r.launcher() - 1, What: "launcher"})
	}
	if d.header {
		list = append(list, Range{First: r.launcher(), Last: r.launcher() + head.HeaderSize - 1, What: "header"})
	}
	for _, n := range d.pieces {
		list = add(list, r.piece(n))
	}
	end := r.size() - head.TrailerSize
	if d.digests {
		list = append(list, Range{First: r.trailer.DigestsOffset(), Last: end - 1, What: "digests"})
	}
	if d.trailer {
		list = append(list, Range{First: end, Last: r.size() - 1, What: "trailer"})
	}
	return list
}

// survey compares a copy with the reference. What cannot be read is damaged. compared is
// called with the number of bytes that were compared.
func (r reference) survey(ctx context.Context, c Copy, compared func(n int64)) (d damage, err error) {
	sum, err := r.sumLauncher(ctx, c)
	if err != nil {
		return d, err
	}
	compared(int64(r.trailer.PayloadOffset))
	d.launcher = sum != r.trailer.LauncherSHA256
	d.header = !has(c, r.launcher(), r.header())
	payload, buf := r.payload(c), make([]byte, head.PieceSize)
	for n := range payload.Pieces() {
		if err := ctx.Err(); err != nil {
			return d, err
		}
		if _, err := payload.ReadPiece(n, buf); err != nil {
			d.pieces = append(d.pieces, n)
		}
		compared(r.piece(n).Len())
	}
	d.digests = !has(c, r.trailer.DigestsOffset(), r.frame) || !r.trailer.HasDigests(r.frame)
	d.trailer = !has(c, r.size()-head.TrailerSize, r.trailer.Encode())
	return d, nil
}

// surveySize is the number of bytes that survey compares.
func (r reference) surveySize() int64 { return r.trailer.DigestsOffset() }

// sumLauncher returns the sha256 of the copy's launcher. What cannot be read gives another
// sha256.
func (r reference) sumLauncher(ctx context.Context, c Copy) (sum [sha256.Size]byte, err error) {
	h := sha256.New()
	buf := make([]byte, head.PieceSize)
	for at := int64(0); at < r.launcher(); at += head.PieceSize {
		if err := ctx.Err(); err != nil {
			return sum, err
		}
		b := buf[:min(head.PieceSize, r.launcher()-at)]
		if _, err := c.ReadAt(b, at); err != nil {
			return sum, nil
		}
		h.Write(b)
	}
	return [sha256.Size]byte(h.Sum(nil)), nil
}

// has reports whether the copy has these bytes at an offset.
func has(c Copy, at int64, want []byte) bool {
	b := make([]byte, len(want))
	_, err := c.ReadAt(b, at)
	return err == nil && bytes.Equal(b, want)
}
