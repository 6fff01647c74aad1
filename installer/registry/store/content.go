package store

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"airlift/bundle"
	"airlift/bundle/head"
	"airlift/internal/fault"
)

// compareAgain is after how long a section is compared once more: what was intact may be damaged on the disk later.
const compareAgain = time.Hour

// A content reads a kept file. It compares each section with its digest before it returns a byte of it, the first time
// and then once an hour. The sections are the launcher, the pieces of the payload, and the frame with their digests; the
// header and the trailer are in memory.
type content struct {
	file    *os.File
	buffers chan []byte
	damaged func(error)

	// Set by compare; without them, nothing is compared.
	trailer head.Trailer
	payload *head.Payload
	opened  time.Time
	// compared has for each section the hour since opened, from 1, in which it was compared last.
	compared []atomic.Uint32
}

// compare makes content compare what it reads. The trailer and the digests of f were compared already.
func (c *content) compare(f *bundle.File) {
	c.trailer, c.payload, c.opened = f.Trailer(), f.Payload().In(c.file), time.Now()
	c.compared = make([]atomic.Uint32, c.payload.Pieces()+2)
}

func (c *content) ReadAt(b []byte, at int64) (n int, err error) {
	if c.payload == nil {
		return c.file.ReadAt(b, at)
	}
	for n < len(b) {
		m, err := c.read(b[n:], at+int64(n))
		n += m
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// read reads from one section.
func (c *content) read(b []byte, at int64) (int, error) {
	t := c.trailer
	launcher, payload := int64(t.PayloadOffset)-head.HeaderSize, int64(t.PayloadOffset)
	digests, trailer := t.DigestsOffset(), int64(t.FileSize())-head.TrailerSize
	switch {
	case at < 0:
		return 0, fmt.Errorf("reading at the offset %d", at)
	case at < launcher:
		return c.section(b, at, 0, launcher, c.hash(0, launcher, t.LauncherSHA256))
	case at < payload:
		return copy(b, head.Header{FileSize: t.FileSize()}.Encode()[at-launcher:]), nil
	case at < digests:
		piece := (at - payload) / head.PieceSize
		return c.section(b, at, piece+1, min(payload+(piece+1)*head.PieceSize, digests), func(buf []byte) error {
			_, err := c.payload.ReadPiece(piece, buf)
			return err
		})
	case at < trailer:
		return c.section(b, at, int64(len(c.compared))-1, trailer, c.hash(digests, trailer, t.DigestsSHA256))
	case at < int64(t.FileSize()):
		return copy(b, t.Encode()[at-trailer:]), nil
	}
	return 0, io.EOF
}

// section reads from the section with a number that ends at the offset end. It compares the section first, if that is
// due.
func (c *content) section(b []byte, at, number, end int64, compare func(buf []byte) error) (int, error) {
	hour := uint32(time.Since(c.opened)/compareAgain) + 1
	if c.compared[number].Load() != hour {
		if err := c.withBuffer(compare); err != nil {
			err = fault.New(fault.Bundle, "%s is damaged: %w", c.file.Name(), err)
			c.damaged(err)
			return 0, err
		}
		c.compared[number].Store(hour)
	}
	n, err := c.file.ReadAt(b[:min(int64(len(b)), end-at)], at)
	if n > 0 {
		return n, nil
	}
	return 0, err
}

// withBuffer calls do with a buffer for one piece. It waits until one is free.
func (c *content) withBuffer(do func(buf []byte) error) error {
	buf := <-c.buffers
	if buf == nil {
		buf = make([]byte, head.PieceSize)
	}
	defer func() { c.buffers <- buf }()
	return do(buf)
}

// hash returns a comparison of the bytes between two offsets with their sha256.
func (c *content) hash(from, to int64, want [sha256.Size]byte) func(buf []byte) error {
	return func(buf []byte) error {
		is, err := sumOf(c.file, from, to, buf)
		if err == nil && is != want {
			err = &head.DamagedPiece{First: from, Last: to - 1}
		}
		return err
	}
}

// sumOf is the sha256 of the bytes between two offsets.
func sumOf(r io.ReaderAt, from, to int64, buf []byte) (sum [sha256.Size]byte, err error) {
	h := sha256.New()
	if _, err := io.CopyBuffer(struct{ io.Writer }{h}, struct{ io.Reader }{io.NewSectionReader(r, from, to-from)}, buf); err != nil {
		return sum, err
	}
	return [sha256.Size]byte(h.Sum(nil)), nil
}
