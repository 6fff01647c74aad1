package bundle

import (
	"context"
	"errors"
	"io"
)

// A Stream reads a bundle's payload once, from front to back, without the parts that are
// not wanted. One goroutine may use it. Another goroutine unpacks and verifies entries
// in advance.
type Stream struct {
	ctx      context.Context
	file     *File
	manifest *Manifest
	unpacker *unpacker
	unwanted func(Entry) bool
	rest     []Entry // not yet returned by Next
	entry    *entryReader
	ahead    *readAhead // nil until Next is called
	err      error      // why the stream ended, or io.EOF
}

// Stream starts to read the payload. The manifest is read before it returns. When ctx is
// cancelled, reading fails with its error. The caller must Close the stream.
func (f *File) Stream(ctx context.Context) (*Stream, error) {
	return f.stream(ctx, false)
}

// stream is Stream. With verify, it also reads the installer and compares the unpacked
// content with the manifest.
func (f *File) stream(ctx context.Context, verify bool) (*Stream, error) {
	m, err := f.Manifest()
	if err != nil {
		return nil, err
	}
	u, err := newUnpacker(ctx, f, verify)
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		u.close()
		return nil, u.failed(ctx.Err())
	}
	return &Stream{ctx: ctx, file: f, manifest: m, unpacker: u, rest: m.Entries}, nil
}

// Content is the content of an entry. It comes from bytes that matched their digests.
// Read returns io.EOF only if the size matches the manifest.
type Content interface {
	io.Reader
	// Verifies returns the sha256, in hex, that the content had when the bundle was
	// written. A caller that reads to io.EOF need not compare it again.
	Verifies() string
}

// Manifest returns the file's manifest.
func (s *Stream) Manifest() *Manifest { return s.manifest }

// Skip makes Next omit the entries for which unwanted returns true. A part with only such
// entries is not read. Skip must be called before Next.
func (s *Stream) Skip(unwanted func(Entry) bool) { s.unwanted = unwanted }

// skips reports whether the stream omits e.
func (s *Stream) skips(e Entry) bool { return s.unwanted != nil && s.unwanted(e) }

// Next returns the next entry and a reader of its content, or io.EOF after the last
// entry. It skips the unread content of the entry before.
//
// Errors about the content carry fault.Bundle and name the entry or the part. The stream
// ends with the first error.
func (s *Stream) Next() (Entry, Content, error) {
	if s.err != nil {
		return Entry{}, nil, s.err
	}
	if s.ahead == nil {
		s.ahead = startReadAhead(s.unpacker, s.manifest.Entries, s.unwanted)
	}
	for s.entry != nil && !s.entry.last {
		if err := s.entry.fetch(); err != nil {
			return Entry{}, nil, err
		}
	}
	if s.entry != nil {
		s.entry.release()
	}
	for len(s.rest) > 0 && s.skips(s.rest[0]) {
		s.rest = s.rest[1:]
	}
	if len(s.rest) == 0 {
		_, err := s.receive()
		return Entry{}, nil, err
	}
	s.entry = &entryReader{s: s, e: s.rest[0]}
	s.rest = s.rest[1:]
	if err := s.entry.fetch(); err != nil {
		return Entry{}, nil, err
	}
	return s.entry.e, s.entry, nil
}

// receive returns the next chunk, or ends the stream.
func (s *Stream) receive() (p chunk, err error) {
	if err = s.ctx.Err(); err == nil {
		select {
		case p = <-s.ahead.chunks:
			s.err = p.err
			return p, p.err
		case <-s.ctx.Done():
			err = s.ctx.Err()
		}
	}
	s.err = s.unpacker.failed(err)
	return chunk{}, s.err
}

// Close ends the stream and frees its memory. It does not close the File.
func (s *Stream) Close() error {
	if s.err == nil {
		s.err = errors.New("reading from a closed stream")
	}
	if s.ahead != nil {
		s.ahead.stop()
	}
	s.unpacker.close()
	return nil
}

// An entryReader reads one entry from its chunks.
type entryReader struct {
	s    *Stream
	e    Entry
	buf  []byte // the chunk's buffer, returned to the free list when it was read
	data []byte // its unread content
	last bool   // no chunk follows, and all were verified
}

func (r *entryReader) Verifies() string { return r.e.SHA256 }

func (r *entryReader) Read(p []byte) (int, error) {
	if r.s.entry != r && r.s.err == nil {
		return 0, errors.New("reading an entry after the stream moved to a later one")
	}
	if r.s.err != nil {
		return 0, r.s.err
	}
	if err := r.s.ctx.Err(); err != nil {
		r.s.err = r.s.unpacker.failed(err)
		return 0, r.s.err
	}
	for len(r.data) == 0 && len(p) > 0 {
		if r.last {
			r.release()
			return 0, io.EOF
		}
		if err := r.fetch(); err != nil {
			return 0, err
		}
	}
	n := copy(p, r.data)
	r.data = r.data[n:]
	return n, nil
}

// fetch replaces the current chunk with the next one.
func (r *entryReader) fetch() error {
	r.release()
	p, err := r.s.receive()
	if err != nil {
		return err
	}
	r.buf, r.data, r.last = p.buf, p.data, p.last
	return nil
}

func (r *entryReader) release() {
	if r.buf != nil {
		r.s.ahead.free <- r.buf
	}
	r.buf, r.data = nil, nil
}
