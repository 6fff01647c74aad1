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
	"slices"

	"github.com/klauspost/compress/zstd"

	"airlift/bundle/head"
	"airlift/internal/interrupt"
)

// A Stream reads a bundle's payload once, from front to back, without the parts that are
// not wanted, and checks that the manifest lists exactly its entries. One goroutine may use it.
type Stream struct {
	ctx      context.Context
	file     *File
	verify   bool // also compares the unpacked content with the manifest
	unwanted func(Entry) bool
	zstd     *zstd.Decoder // one for all parts, because of its large window; it decodes ahead of the reader
	err      error         // why the stream ended, or io.EOF

	parts   []entriesOf   // not yet begun
	part    Part          // in progress; its name is empty if there is none
	entries []Entry       // of it, not yet opened
	pos     boundedReader // between zstd and tar
	tar     *tar.Reader
	content *content // of the current entry
}

// entriesOf are the entries of a part.
type entriesOf struct {
	part    string
	entries []Entry
}

// Stream starts to read the payload. The manifest is read before it returns. When ctx is
// cancelled, reading fails with its error. The caller must Close the stream.
func (f *File) Stream(ctx context.Context) (*Stream, error) { return f.stream(ctx, false) }

// stream is Stream. With verify, it also reads the head.
func (f *File) stream(ctx context.Context, verify bool) (*Stream, error) {
	m, err := f.Manifest()
	if err != nil {
		return nil, err
	}
	s, err := f.headStream(ctx)
	if err != nil {
		return nil, err
	}
	if s.verify = verify; !verify {
		s.parts = nil
	}
	for name, entries := range partsOf(m.Entries) {
		s.parts = append(s.parts, entriesOf{name, entries})
	}
	return s, nil
}

// headStream reads and verifies the manifest and the installer.
func (f *File) headStream(ctx context.Context) (*Stream, error) {
	z, err := newDecoder()
	if err != nil {
		return nil, f.readError(err)
	}
	s := &Stream{ctx: ctx, file: f, zstd: z, verify: true, parts: []entriesOf{{HeadPart, f.headEntries()}}}
	if ctx.Err() != nil {
		z.Close()
		return nil, s.failed(ctx.Err())
	}
	return s, nil
}

// Content is the content of an entry. It comes from bytes that matched their digests.
// Read returns io.EOF only if the size matches the manifest.
type Content interface {
	io.Reader
	// Verifies returns the sha256, in hex, that the content had when the bundle was
	// written. A caller that reads to io.EOF need not compare it again.
	Verifies() string
}

// Skip makes Next omit the entries for which unwanted returns true. A part with only such
// entries is not read. Skip must be called before Next.
func (s *Stream) Skip(unwanted func(Entry) bool) { s.unwanted = unwanted }

// Next returns the next entry and a reader of its content, or io.EOF after the last
// entry. It skips the unread content of the entry before.
//
// Errors about the content carry fault.Bundle and name the entry or the part. The stream
// ends with the first error.
func (s *Stream) Next() (Entry, Content, error) {
	for s.err == nil {
		switch {
		case s.content != nil:
			if _, err := io.Copy(struct{ io.Writer }{io.Discard}, s.content); err == nil {
				s.content = nil
			}
		case len(s.entries) > 0:
			e := s.entries[0]
			s.entries = s.entries[1:]
			if s.err = s.open(e); s.err == nil && (s.unwanted == nil || !s.unwanted(e)) {
				return e, s.content, nil
			}
		case s.part.Name != "":
			s.err = s.end()
		case len(s.parts) > 0:
			p := s.parts[0]
			s.parts = s.parts[1:]
			wanted := s.unwanted == nil && (len(p.entries) > 0 || p.part == ImagesPart)
			if wanted || s.verify || slices.ContainsFunc(p.entries, func(e Entry) bool { return s.unwanted != nil && !s.unwanted(e) }) {
				s.err = s.begin(p)
			}
		default:
			s.err = io.EOF
		}
	}
	return Entry{}, nil, s.err
}

// Close ends the stream and frees its memory. It does not close the File.
func (s *Stream) Close() error {
	if s.err == nil {
		s.err = errors.New("reading from a closed stream")
	}
	s.zstd.Close()
	return nil
}

// Each calls use for each wanted entry, in their order.
func (f *File) Each(ctx context.Context, wanted func(Entry) bool, use func(Entry, Content) error) error {
	s, err := f.Stream(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	s.Skip(func(e Entry) bool { return !wanted(e) })
	for {
		e, content, err := s.Next()
		if err == io.EOF {
			return nil
		}
		if err == nil {
			err = use(e, content)
		}
		if err != nil {
			return err
		}
	}
}

// Read returns the content of an entry, which must be small.
func (f *File) Read(ctx context.Context, entry string) (b []byte, err error) {
	err = f.Each(ctx, func(e Entry) bool { return e.Name == entry }, func(_ Entry, content Content) error {
		b, err = io.ReadAll(content)
		return err
	})
	if err == nil && b == nil {
		err = f.damaged("it has no entry %q", entry)
	}
	return b, err
}

func (s *Stream) begin(e entriesOf) error {
	p := s.file.part(e.part)
	if p.Size == 0 {
		return nil // without entries, see checkParts
	}
	frame, err := frameHeader(s.ctx, s.file, p)
	if err != nil {
		return s.failed(err)
	}
	content := s.file.payload.Within(s.ctx).Section(p.Offset, p.Size)
	if err := s.zstd.Reset(newFrameReader(interrupt.Reader(s.ctx, content), frame)); err != nil {
		return s.failed(err)
	}
	s.part, s.entries, s.pos = p, e.entries, boundedReader{r: s.zstd}
	s.tar = tar.NewReader(&s.pos)
	return nil
}

// open reads the header of the next entry, which must be e.
func (s *Stream) open(e Entry) error {
	s.pos.limit += head.HeaderLen(e.Size)
	h, err := s.tar.Next()
	switch {
	case err == io.EOF:
		err = fmt.Errorf("the payload's part %q ends before it", s.part.Name)
	case err != nil:
	case h.Typeflag != tar.TypeReg:
		err = fmt.Errorf("it is not a regular file but of tar type %q", h.Typeflag)
	case h.Name != e.Name:
		err = fmt.Errorf("the tar has %q at its position", h.Name)
	case h.Size != e.Size:
		err = fmt.Errorf("it has %d bytes, expected %d", h.Size, e.Size)
	case s.pos.n != s.pos.limit:
		err = errForm
	}
	if err != nil {
		return s.failed(fmt.Errorf("entry %q: %w", e.Name, err))
	}
	s.pos.limit += head.Padded(e.Size)
	s.content = &content{stream: s, entry: e, left: e.Size}
	if s.verify {
		s.content.sum = sha256.New()
	}
	return nil
}

type content struct {
	stream *Stream
	entry  Entry
	left   int64
	sum    hash.Hash // nil unless the stream verifies
}

func (c *content) Verifies() string { return c.entry.SHA256 }

// Read returns io.EOF only if the size, and the sha256 if the stream verifies, match the manifest.
func (c *content) Read(p []byte) (n int, err error) {
	s := c.stream
	switch {
	case s.err != nil:
		return 0, s.err
	case s.content != c:
		return 0, errors.New("reading an entry after the stream moved to a later one")
	case s.ctx.Err() == nil:
		n, err = s.tar.Read(p)
		if c.sum != nil {
			c.sum.Write(p[:n])
		}
		if c.left -= int64(n); err == io.EOF {
			err = c.check()
		}
		if err == nil || err == io.EOF {
			return n, err
		}
	}
	s.err = s.failed(fmt.Errorf("entry %q: %w", c.entry.Name, err))
	return n, s.err
}

// check returns io.EOF, unless the content differs from the manifest.
func (c *content) check() error {
	if c.left > 0 {
		return io.ErrUnexpectedEOF
	}
	if c.sum != nil {
		if got := hex.EncodeToString(c.sum.Sum(nil)); got != c.entry.SHA256 {
			return fmt.Errorf("its sha256 is %s, expected %s", got, c.entry.SHA256)
		}
	}
	return io.EOF
}

// end checks that nothing follows the last entry of the part, except the end of the tar
// in the last part.
func (s *Stream) end() error {
	name := s.part.Name
	s.part = Part{}
	what := fmt.Sprintf("the end of its payload's part %q", name)
	if name == ImagesPart {
		s.pos.limit += tarEnd
		if _, err := s.tar.Next(); err == nil {
			return s.failed(errors.New("its payload has entries that the manifest does not list"))
		} else if err != io.EOF {
			return s.failed(fmt.Errorf("%s: %w", what, err))
		}
		if s.pos.n != s.pos.limit {
			return s.failed(errors.New("the end of the tar is missing in its payload"))
		}
	} else if _, err := io.CopyN(io.Discard, &s.pos, s.pos.limit-s.pos.n); err != nil { // the last entry's padding
		return s.failed(fmt.Errorf("%s: %w", what, unexpected(err)))
	}
	s.pos.limit++
	switch n, err := s.pos.Read(make([]byte, 1)); {
	case n > 0:
		return s.failed(fmt.Errorf("its payload's part %q continues after its last entry", name))
	case err != io.EOF:
		return s.failed(fmt.Errorf("%s: %w", what, err))
	}
	return nil
}

func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// failed returns an error for err, or the context's error if that is the reason.
func (s *Stream) failed(err error) error {
	if ctx := s.ctx.Err(); ctx != nil {
		return fmt.Errorf("reading %s: %w", s.file.path, ctx)
	}
	return s.file.damaged("%w", err)
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
