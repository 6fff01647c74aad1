package bundle

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/klauspost/compress/zstd"

	"airlift/bundle/head"
	"airlift/internal/interrupt"
)

// An unpacker reads the entries of the payload's parts and checks that the manifest lists exactly
// these.
type unpacker struct {
	ctx  context.Context
	file *File
	zstd *zstd.Decoder // one for all parts, because of its large window
	part Part
	pos  boundedReader // between zstd and tar
	tar  *tar.Reader

	verify bool
	entry  Entry
	left   int64     // remaining bytes of the entry
	sum    hash.Hash // of the entry, with verify
}

// newUnpacker returns an unpacker; call begin before use. The digests of the compressed
// payload are always compared. With verify, the unpacked content is compared too.
func newUnpacker(ctx context.Context, f *File, verify bool) (*unpacker, error) {
	z, err := newDecoder()
	if err != nil {
		return nil, f.readError(err)
	}
	return &unpacker{ctx: ctx, file: f, zstd: z, verify: verify}, nil
}

// begin moves to the beginning of a part.
func (u *unpacker) begin(p Part) error {
	frame, err := frameHeader(u.ctx, u.file, p)
	if err != nil {
		return u.failed(err)
	}
	content := u.file.payload.Within(u.ctx).Section(p.Offset, p.Size)
	if err := u.zstd.Reset(newFrameReader(interrupt.Reader(u.ctx, content), frame)); err != nil {
		return u.failed(err)
	}
	u.part, u.pos = p, boundedReader{r: u.zstd}
	u.tar = tar.NewReader(&u.pos)
	return nil
}

func (u *unpacker) close() { u.zstd.Close() }

// open reads the header of the next entry, which must be e.
func (u *unpacker) open(e Entry) error {
	u.pos.limit += head.HeaderLen(e.Size)
	u.entry, u.left, u.sum = e, e.Size, nil
	if u.verify {
		u.sum = sha256.New()
	}
	h, err := u.tar.Next()
	switch {
	case err == io.EOF:
		err = fmt.Errorf("the payload's part %q ends before it", u.part.Name)
	case err != nil:
	case h.Typeflag != tar.TypeReg:
		err = fmt.Errorf("it is not a regular file but of tar type %q", h.Typeflag)
	case h.Name != e.Name:
		err = fmt.Errorf("the tar has %q at its position", h.Name)
	case h.Size != e.Size:
		err = fmt.Errorf("it has %d bytes, expected %d", h.Size, e.Size)
	case u.pos.n != u.pos.limit:
		err = errForm
	}
	if err != nil {
		return u.fail(err)
	}
	u.pos.limit += head.Padded(e.Size)
	return nil
}

// Read reads from the current entry. It returns io.EOF only if the size, and with verify
// the sha256, match the manifest.
func (u *unpacker) Read(p []byte) (int, error) {
	n, err := u.tar.Read(p)
	if u.sum != nil {
		u.sum.Write(p[:n])
	}
	u.left -= int64(n)
	switch {
	case err == nil:
		return n, nil
	case err != io.EOF:
		return n, u.fail(err)
	case u.left > 0:
		return n, u.fail(io.ErrUnexpectedEOF)
	case u.sum != nil:
		if got := hex.EncodeToString(u.sum.Sum(nil)); got != u.entry.SHA256 {
			return n, u.fail(fmt.Errorf("its sha256 is %s, expected %s", got, u.entry.SHA256))
		}
	}
	return n, io.EOF
}

// pass reads an entry and discards its content.
func (u *unpacker) pass(e Entry) error {
	if err := u.open(e); err != nil {
		return err
	}
	_, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, u, make([]byte, chunkSize))
	return err
}

// end checks that nothing follows the last entry of the part, except the end of the tar
// in the last part.
func (u *unpacker) end() error {
	what := fmt.Sprintf("the end of its payload's part %q", u.part.Name)
	if u.part.Name == ImagesPart {
		u.pos.limit += tarEnd
		if _, err := u.tar.Next(); err == nil {
			return u.failed(errors.New("its payload has entries that the manifest does not list"))
		} else if err != io.EOF {
			return u.failed(fmt.Errorf("%s: %w", what, err))
		}
		if u.pos.n != u.pos.limit {
			return u.failed(errors.New("the end of the tar is missing in its payload"))
		}
	} else if _, err := io.CopyN(io.Discard, &u.pos, u.pos.limit-u.pos.n); err != nil { // the last entry's padding
		return u.failed(fmt.Errorf("%s: %w", what, unexpected(err)))
	}
	u.pos.limit++
	switch n, err := u.pos.Read(make([]byte, 1)); {
	case n > 0:
		return u.failed(fmt.Errorf("its payload's part %q continues after its last entry", u.part.Name))
	case err != io.EOF:
		return u.failed(fmt.Errorf("%s: %w", what, err))
	}
	return nil
}

func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// fail returns an error about the current entry.
func (u *unpacker) fail(err error) error {
	return u.failed(fmt.Errorf("entry %q: %w", u.entry.Name, err))
}

// failed returns an error for err, or the context's error if that is the reason.
func (u *unpacker) failed(err error) error {
	if ctx := u.ctx.Err(); ctx != nil {
		return fmt.Errorf("reading %s: %w", u.file.path, ctx)
	}
	return u.file.damaged("%w", err)
}

// A boundedReader reads at most limit bytes from r, so that a few compressed bytes cannot
// unpack to more than the manifest lists.
type boundedReader struct {
	r     io.Reader
	n     int64 // bytes read
	limit int64
}

var errForm = errors.New("the tar does not follow the manifest")

func (b *boundedReader) Read(p []byte) (int, error) {
	if b.n >= b.limit && len(p) > 0 {
		return 0, errForm
	}
	n, err := b.r.Read(p[:min(int64(len(p)), b.limit-b.n)])
	b.n += int64(n)
	return n, err
}
