package head

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"io"
)

const (
	// PieceSize is the number of payload bytes for one digest. A piece stays in a core's
	// cache until it is decompressed, and the digests are only 1/8000 of the file.
	PieceSize = 256 << 10

	// MaxPayload is the maximum size of a payload in bytes: 1 TiB. Its digests are
	// 128 MiB, as much as a decoder's window.
	MaxPayload = 1 << 40

	digestsHeaderSize = 8 // magic and size, as in every skippable frame
)

// DigestsSize is the size in bytes of the frame with the digests of a payload of size
// bytes.
func DigestsSize(size uint64) uint64 {
	return digestsHeaderSize + (size+PieceSize-1)/PieceSize*sha256.Size
}

// A Digester computes the digests of the payload that is written to it.
type Digester struct {
	piece hash.Hash
	n     int // bytes of the current piece
	sums  []byte
}

// Write never fails.
func (d *Digester) Write(p []byte) (int, error) {
	if d.piece == nil {
		d.piece = sha256.New()
	}
	all := len(p)
	for len(p) > 0 {
		n := min(len(p), PieceSize-d.n)
		d.piece.Write(p[:n])
		p = p[n:]
		if d.n += n; d.n == PieceSize {
			d.end()
		}
	}
	return all, nil
}

func (d *Digester) end() {
	d.sums = d.piece.Sum(d.sums)
	d.piece.Reset()
	d.n = 0
}

// Encode ends the payload. It returns the frame that follows the payload, and the
// frame's sha256 for the trailer.
func (d *Digester) Encode() (frame []byte, sum [sha256.Size]byte) {
	if d.n > 0 {
		d.end()
	}
	frame = EncodeDigests(d.sums)
	return frame, sha256.Sum256(frame)
}

// EncodeDigests returns the frame with the digests sums, one after the other.
func EncodeDigests(sums []byte) (frame []byte) { return append(digestsHeader(len(sums)), sums...) }

func digestsHeader(size int) []byte {
	return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, skippableMagic), uint32(size))
}

// A Payload reads a bundle's compressed payload. It compares all bytes with their digest
// before it returns them.
type Payload struct {
	ctx          context.Context // of reads from a source
	file         io.ReaderAt
	offset, size int64 // in the file
	digests      []byte
}

// OpenPayload reads the digests of the payload of file, whose trailer is t. file is read by the
// offsets of the whole bundle. Errors carry fault.Bundle and name path.
func OpenPayload(file io.ReaderAt, path string, t Trailer) (*Payload, error) {
	frame := make([]byte, DigestsSize(t.PayloadSize))
	at := t.DigestsOffset()
	if _, err := file.ReadAt(frame, at); err != nil {
		return nil, ReadError(path, err)
	}
	if !t.HasDigests(frame) {
		return nil, Damaged(path, "the digests of its payload (%d bytes at offset %d) do not match their sha256", len(frame), at)
	}
	return NewPayload(file, t, frame), nil
}

// DigestsOffset is the offset of the frame with the digests in the bundle, in bytes.
func (t Trailer) DigestsOffset() int64 { return int64(t.PayloadOffset + t.PayloadSize) }

// HasDigests reports whether frame has the digests of the payload.
func (t Trailer) HasDigests(frame []byte) bool {
	return uint64(len(frame)) == DigestsSize(t.PayloadSize) && sha256.Sum256(frame) == t.DigestsSHA256 &&
		bytes.Equal(frame[:digestsHeaderSize], digestsHeader(len(frame)-digestsHeaderSize))
}

// NewPayload returns the payload of file, whose trailer is t, with digests from elsewhere:
// frame has the size of the frame with the digests.
func NewPayload(file io.ReaderAt, t Trailer, frame []byte) *Payload {
	return &Payload{ctx: context.Background(), file: file, offset: int64(t.PayloadOffset), size: int64(t.PayloadSize), digests: frame[digestsHeaderSize:]}
}

// Within returns the same payload. When ctx is cancelled, reads from the source of a thin file fail.
func (p *Payload) Within(ctx context.Context) *Payload {
	within := *p
	within.ctx = ctx
	return &within
}

// Section reads size bytes at an offset in the file. The range must be within the
// payload. It reads whole pieces from the disk.
func (p *Payload) Section(offset, size int64) io.Reader {
	return &section{payload: p, next: offset - p.offset, end: offset - p.offset + size}
}

type section struct {
	payload   *Payload
	next, end int64 // range to be read from the disk, in the payload
	buf       []byte
	data      []byte // read and compared
}

func (s *section) Read(b []byte) (int, error) {
	if len(s.data) == 0 {
		if s.next >= s.end {
			return 0, io.EOF
		}
		if err := s.fetch(); err != nil {
			return 0, err
		}
	}
	n := copy(b, s.data)
	s.data = s.data[n:]
	return n, nil
}

func (s *section) fetch() error {
	p := s.payload
	n := s.next / PieceSize
	if s.buf == nil {
		s.buf = make([]byte, min(PieceSize, p.size))
	}
	piece, err := p.ReadPiece(n, s.buf)
	if err != nil {
		return err
	}
	begin := n * PieceSize
	end := min(begin+int64(len(piece)), s.end)
	s.data = piece[s.next-begin : end-begin]
	s.next = end
	return nil
}

// Pieces is the number of pieces.
func (p *Payload) Pieces() int64 { return (p.size + PieceSize - 1) / PieceSize }

// ReadPiece reads piece n (the first is 0) and compares it with its digest. buf must
// have room for PieceSize bytes or for the whole payload. A Verifier reads a piece that does
// not match again.
func (p *Payload) ReadPiece(n int64, buf []byte) ([]byte, error) {
	begin, end := n*PieceSize, min((n+1)*PieceSize, p.size)
	piece, digest := buf[:end-begin], p.digests[n*sha256.Size:][:sha256.Size]
	err := readVerified(p.ctx, p.file, piece, p.offset+begin, func(b []byte) bool {
		sum := sha256.Sum256(b)
		return bytes.Equal(sum[:], digest)
	})
	if err != nil {
		return nil, err
	}
	return piece, nil
}

// DamagedPiece is the error for bytes that do not match their sha256. First and Last are
// offsets in the file.
type DamagedPiece struct{ First, Last int64 }

func (d *DamagedPiece) Error() string {
	return fmt.Sprintf("bytes %d to %d of the file do not match their sha256", d.First, d.Last)
}
