package bundle

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/klauspost/compress/zstd"

	"airlift/bundle/head"
)

// A Stream reads a bundle's payload once from front to back. It is for one
// goroutine.
type Stream struct {
	ctx      context.Context
	file     *File
	zstd     *zstd.Decoder
	pos      boundedReader // between zstd and tar
	tar      *tar.Reader
	manifest *Manifest
	rest     []Entry // still to come
	entry    *entryReader
	err      error // what ended the stream, io.EOF included
}

// Stream starts to read the payload and has read the manifest when it returns.
// When ctx ends, reading ends with its error. The caller must Close it.
func (f *File) Stream(ctx context.Context) (*Stream, error) {
	return f.stream(ctx, io.Discard)
}

// stream is Stream; the compressed bytes are also written to tee.
func (f *File) stream(ctx context.Context, tee io.Writer) (*Stream, error) {
	payload := io.NewSectionReader(f.file, f.PayloadOffset(), f.PayloadSize())
	// The decoder reads block by block: 1 MiB at a time spares system calls.
	in := bufio.NewReaderSize(io.TeeReader(contextReader{ctx, payload}, tee), 1<<20)
	z, err := newDecoder(in)
	if err != nil {
		return nil, f.readError(err)
	}
	s := &Stream{ctx: ctx, file: f, zstd: z, pos: boundedReader{r: z}}
	s.tar = tar.NewReader(&s.pos)
	err = s.readManifest()
	if err == nil {
		_, err = s.open(f.Installer()) // Next passes over it, as over any entry that nobody reads
	}
	if err != nil {
		z.Close()
		return nil, err
	}
	s.rest = s.manifest.Entries
	return s, nil
}

// Manifest returns the manifest the stream began with.
func (s *Stream) Manifest() *Manifest { return s.manifest }

func (s *Stream) readManifest() error {
	t := s.file.trailer
	e := Entry{Name: ManifestName, Size: int64(t.ManifestSize), SHA256: hexOf(t.ManifestSHA256)}
	r, err := s.open(e)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if _, err := b.ReadFrom(r); err != nil {
		return err
	}
	m, err := DecodeManifest(b.Bytes())
	if err != nil {
		return fmt.Errorf("reading %s: %w", s.file.path, err)
	}
	s.manifest = m
	return nil
}

// Next returns the next entry and a reader of its content; after the last it
// returns io.EOF. What the caller left unread of the entry before is read and
// verified first.
//
// The reader gives io.EOF only when size and sha256 were what the manifest
// says; until then nothing read from it is to be trusted. Errors about the
// content carry fault.Bundle and name the entry. After an error the stream is
// over.
func (s *Stream) Next() (Entry, io.Reader, error) {
	if s.err != nil {
		return Entry{}, nil, s.err
	}
	if s.entry != nil {
		if _, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, s.entry, make([]byte, 128<<10)); err != nil {
			return Entry{}, nil, err
		}
	}
	if len(s.rest) == 0 {
		s.err = s.end()
		return Entry{}, nil, s.err
	}
	e := s.rest[0]
	s.rest = s.rest[1:]
	r, err := s.open(e)
	if err != nil {
		return Entry{}, nil, err
	}
	return e, r, nil
}

// open finds e as the next thing in the tar.
func (s *Stream) open(e Entry) (*entryReader, error) {
	s.pos.limit += head.HeaderLen(e.Size)
	h, err := s.tar.Next()
	switch {
	case err == io.EOF:
		err = errors.New("the payload ends before it")
	case err != nil:
	case h.Typeflag != tar.TypeReg:
		err = fmt.Errorf("it is not a regular file but of tar type %q", h.Typeflag)
	case h.Name != e.Name:
		err = fmt.Errorf("%q stands in its place", h.Name)
	case h.Size != e.Size:
		err = fmt.Errorf("it has %d bytes, and should have %d", h.Size, e.Size)
	case s.pos.n != s.pos.limit:
		err = errForm
	}
	if err != nil {
		return nil, s.fail(e, err)
	}
	s.pos.limit += head.Padded(e.Size)
	s.entry = &entryReader{s: s, e: e, left: e.Size, sum: sha256.New()}
	return s.entry, nil
}

// end checks that the tar ends behind the last entry and nothing follows.
func (s *Stream) end() error {
	s.pos.limit += tarEnd
	if _, err := s.tar.Next(); err == nil {
		return s.failed(errors.New("its payload has entries that the manifest does not list"))
	} else if err != io.EOF {
		return s.failed(fmt.Errorf("the end of its payload: %w", err))
	}
	if s.pos.n != s.pos.limit {
		return s.failed(errors.New("its payload lacks the end of the tar"))
	}
	s.pos.limit++
	switch n, err := s.pos.Read(make([]byte, 1)); {
	case n > 0:
		return s.failed(errors.New("its payload goes on behind the end of the tar"))
	case err != io.EOF:
		return s.failed(fmt.Errorf("the end of its payload: %w", err))
	}
	return io.EOF
}

// Close ends the stream and frees its memory. It does not close the File.
func (s *Stream) Close() error {
	if s.err == nil {
		s.err = errors.New("reading from a closed stream")
	}
	s.zstd.Close()
	return nil
}

// fail ends the stream with an error about entry e.
func (s *Stream) fail(e Entry, err error) error {
	return s.failed(fmt.Errorf("entry %q: %w", e.Name, err))
}

// failed ends the stream with err, or with the context's error if that is why.
func (s *Stream) failed(err error) error {
	if ctx := s.ctx.Err(); ctx != nil {
		s.err = fmt.Errorf("reading %s: %w", s.file.path, ctx)
	} else {
		s.err = s.file.damaged("%w", err)
	}
	return s.err
}

// An entryReader reads and verifies one entry.
type entryReader struct {
	s    *Stream
	e    Entry
	left int64
	sum  hash.Hash
	done bool // verified
}

func (r *entryReader) Read(p []byte) (int, error) {
	switch {
	case r.s.err != nil:
		return 0, r.s.err
	case r.s.entry != r:
		return 0, errors.New("reading an entry that the stream has left behind")
	case r.done:
		return 0, io.EOF
	}
	if err := r.s.ctx.Err(); err != nil {
		return 0, r.s.failed(err)
	}
	n, err := r.s.tar.Read(p)
	r.sum.Write(p[:n])
	r.left -= int64(n)
	switch {
	case err == io.EOF && r.left == 0:
		if got := hex.EncodeToString(r.sum.Sum(nil)); got != r.e.SHA256 {
			return n, r.s.fail(r.e, fmt.Errorf("its sha256 is %s and should be %s", got, r.e.SHA256))
		}
		r.done = true
		return n, io.EOF
	case err == io.EOF:
		return n, r.s.fail(r.e, io.ErrUnexpectedEOF)
	case err != nil:
		return n, r.s.fail(r.e, err)
	}
	return n, nil
}

// A boundedReader reads from r and refuses to pass limit, so that a few
// compressed bytes cannot unpack to more than the manifest accounts for.
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
