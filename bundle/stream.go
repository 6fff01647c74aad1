package bundle

import (
	"context"
	"errors"
	"io"
)

// A Stream reads a bundle's payload once from front to back, leaving out parts of
// which nothing is wanted. It is for one goroutine. Behind it another one unpacks
// and verifies ahead of the caller.
type Stream struct {
	ctx      context.Context
	file     *File
	manifest *Manifest
	unpacker *unpacker
	unwanted func(Entry) bool
	rest     []Entry // that Next has yet to return
	entry    *entryReader
	ahead    *ahead // nil until Next is called
	err      error  // what ended the stream, io.EOF included
}

// Stream starts to read the payload. The manifest has been read when it returns,
// by this call or an earlier one. When ctx ends, reading ends with its error. The
// caller must Close it.
func (f *File) Stream(ctx context.Context) (*Stream, error) {
	return f.stream(ctx, false)
}

// stream is Stream. Where everything is to be verified, the installer is read, too,
// and what is unpacked is compared with the manifest.
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

// Content is what an entry contains. It is unpacked from bytes that were compared
// with their digests, and Read gives io.EOF only when its size is what the manifest
// says.
type Content interface {
	io.Reader
	// Verifies returns the sha256, in hex, that the content had when it was packed.
	// Whoever reads to io.EOF need not compare it again.
	Verifies() string
}

// Manifest returns the file's manifest.
func (s *Stream) Manifest() *Manifest { return s.manifest }

// Skip passes over the entries that are unwanted: Next does not return them. A
// part of the payload of which nothing is wanted is not even read. It is called
// before Next.
func (s *Stream) Skip(unwanted func(Entry) bool) { s.unwanted = unwanted }

// skips says whether the stream passes over e.
func (s *Stream) skips(e Entry) bool { return s.unwanted != nil && s.unwanted(e) }

// Next returns the next entry and a reader of its content; after the last it
// returns io.EOF. What the caller left unread of the entry before is read
// first.
//
// Errors about the content carry fault.Bundle and name the entry or the part. After an error
// the stream is over.
func (s *Stream) Next() (Entry, Content, error) {
	if s.err != nil {
		return Entry{}, nil, s.err
	}
	if s.ahead == nil {
		s.ahead = startAhead(s.unpacker, s.manifest.Entries, s.unwanted)
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

// receive returns the next piece, or ends the stream.
func (s *Stream) receive() (p piece, err error) {
	if err = s.ctx.Err(); err == nil {
		select {
		case p = <-s.ahead.pieces:
			s.err = p.err
			return p, p.err
		case <-s.ctx.Done():
			err = s.ctx.Err()
		}
	}
	s.err = s.unpacker.failed(err)
	return piece{}, s.err
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

// An entryReader reads one entry out of the pieces it comes in.
type entryReader struct {
	s    *Stream
	e    Entry
	buf  []byte // the piece's, to be given back
	data []byte // what is still to be read of it
	last bool   // there are no more pieces, and all were verified
}

func (r *entryReader) Verifies() string { return r.e.SHA256 }

func (r *entryReader) Read(p []byte) (int, error) {
	if r.s.entry != r && r.s.err == nil {
		return 0, errors.New("reading an entry that the stream has left behind")
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

// fetch replaces what is left of a piece by the next one.
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
