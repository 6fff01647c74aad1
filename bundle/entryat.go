package bundle

import (
	"context"
	"io"

	"github.com/klauspost/compress/zstd"

	"airlift/bundle/head"
	"airlift/internal/interrupt"
)

// EntryAt returns the entry that contains the unreadable piece at offset in the file. It unpacks
// the part of the payload only up to this piece; the rest of the part cannot be unpacked. at is the
// number of the entry's bytes before the piece.
func (f *File) EntryAt(ctx context.Context, p Part, offset int64) (e Entry, at int64, err error) {
	entries := f.headEntries()
	if p.Name != HeadPart {
		m, err := f.Manifest()
		if err != nil {
			return Entry{}, 0, err
		}
		entries = p.Entries(m)
	}
	// The piece may begin in the part before.
	piece := f.PayloadOffset() + (offset-f.PayloadOffset())/head.PieceSize*head.PieceSize
	unpacked, err := unpackable(ctx, f, p, max(0, piece-p.Offset))
	if err != nil {
		return Entry{}, 0, err
	}
	for _, e = range entries {
		header := head.HeaderLen(e.Size)
		if size := header + head.Padded(e.Size); unpacked >= size {
			unpacked -= size
			continue
		}
		return e, min(max(0, unpacked-header), e.Size), nil
	}
	return e, e.Size, nil // only the end of the tar is damaged
}

// unpackable returns how many bytes of a part's tar the first size bytes of the part unpack
// to.
func unpackable(ctx context.Context, f *File, p Part, size int64) (n int64, err error) {
	r := interrupt.Reader(ctx, f.payload.Within(ctx).Section(p.Offset, size))
	// With one goroutine, the decoder returns every complete block before an error.
	z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(MaxWindow), zstd.WithDecoderLowmem(true))
	if err != nil {
		return 0, f.readError(err)
	}
	defer z.Close()
	n, _ = io.Copy(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{z}) // the section ends within the frame
	return n, ctx.Err()
}
