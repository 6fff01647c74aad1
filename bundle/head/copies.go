package head

import "io"

// In is the payload of another copy of the same bundle: the pieces are read from file, and compared with the digests of p.
func (p *Payload) In(file io.ReaderAt) *Payload {
	return &Payload{ctx: p.ctx, file: file, offset: p.offset, size: p.size, digests: p.digests}
}

// Frame is the frame with the digests, which follows the payload in the file.
func (p *Payload) Frame() []byte { return EncodeDigests(p.digests) }
