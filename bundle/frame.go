package bundle

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

func frameHeader(ctx context.Context, f *File, p Part) (h zstd.Header, err error) {
	b := make([]byte, min(zstd.HeaderMaxSize, p.Size))
	if _, err := io.ReadFull(f.payload.Within(ctx).Section(p.Offset, p.Size), b); err != nil {
		return h, fmt.Errorf("its payload's part %q: %w", p.Name, err)
	}
	if err := h.Decode(b); err != nil {
		return h, fmt.Errorf("its payload's part %q: %w", p.Name, unexpected(err))
	}
	if h.Skippable {
		return h, fmt.Errorf("its payload's part %q does not begin with a zstd frame", p.Name)
	}
	return h, nil
}

// A frameReader reads exactly one zstd frame. A decoder would continue with the next
// frame and skip skippable ones; here any data after the first frame is an error. It
// only needs the sizes of the frame's blocks.
type frameReader struct {
	r        io.Reader
	ahead    int64 // bytes before the next block's header, or before the frame's end
	header   []byte
	last     bool // that was the last block
	checksum bool
}

// A block header has three bytes (RFC 8878, 3.1.1.2): whether the block is the last,
// its type and its size.
const (
	blockHeaderSize = 3
	blockRLE        = 1 // one byte, repeated size times
)

func newFrameReader(r io.Reader, h zstd.Header) *frameReader {
	return &frameReader{r: r, ahead: int64(h.HeaderSize), checksum: h.HasCheckSum}
}

var errBehindFrame = errors.New("the payload's part has data after its zstd frame")

func (f *frameReader) Read(p []byte) (int, error) {
	n, err := f.r.Read(p)
	if inside := f.follow(p[:n]); inside < n {
		return inside, errBehindFrame
	}
	return n, err
}

func (f *frameReader) follow(p []byte) (inside int) {
	for inside < len(p) {
		if f.ahead > 0 {
			n := min(f.ahead, int64(len(p)-inside))
			f.ahead -= n
			inside += int(n)
			continue
		}
		if f.last {
			break
		}
		f.header = append(f.header, p[inside])
		inside++
		if len(f.header) < blockHeaderSize {
			continue
		}
		h := uint32(f.header[0]) | uint32(f.header[1])<<8 | uint32(f.header[2])<<16
		f.header = f.header[:0]
		f.last, f.ahead = h&1 == 1, int64(h>>3)
		if h>>1&3 == blockRLE {
			f.ahead = 1
		}
		if f.last && f.checksum {
			f.ahead += 4
		}
	}
	return inside
}
