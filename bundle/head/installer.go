package head

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"runtime"

	"github.com/klauspost/compress/zstd"
)

// MaxWindow is the farthest a match may reach back: 128 MiB, the most a stock
// zstd decodes without being told to (its limit is --long=27).
const MaxWindow = 128 << 20

// CopyInstaller decompresses the installer from the head of file's payload
// to w and compares it with the sha256 in the trailer: what was written must
// not be used if there is an error. An error about the file, which is called
// path, carries fault.Bundle; one of w is returned as it is.
func CopyInstaller(w io.Writer, file *os.File, path string, t Trailer) error {
	payload := io.NewSectionReader(file, int64(t.PayloadOffset), int64(t.HeadSize))
	z, err := newDecoder(bufio.NewReaderSize(payload, 1<<20))
	if err != nil {
		return ReadError(path, err)
	}
	defer z.Close()

	size := int64(t.InstallerSize)
	before := HeaderLen(int64(t.ManifestSize)) + Padded(int64(t.ManifestSize)) + HeaderLen(size)
	if _, err := io.CopyN(io.Discard, z, before); err != nil {
		return Damaged(path, "its payload's beginning: %w", unexpected(err))
	}
	out := &target{w: w}
	sum, err := copySummed(out, z, size)
	if out.err != nil {
		return out.err
	}
	if err != nil {
		return Damaged(path, "its installer: %w", unexpected(err))
	}
	if !bytes.Equal(sum, t.InstallerSHA256[:]) {
		return Damaged(path, "its installer has sha256 %x, its trailer says %x", sum, t.InstallerSHA256)
	}
	return nil
}

// newDecoder decodes on all cores: a user waits for this each time. That no
// checksum of zstd's is computed saves a little; a sha256 is compared.
func newDecoder(r io.Reader) (*zstd.Decoder, error) {
	blocks := 4 // under way in the decoder's three stages
	if runtime.GOMAXPROCS(0) == 1 {
		blocks = 1
	}
	return zstd.NewReader(r,
		zstd.WithDecoderMaxWindow(MaxWindow), zstd.WithDecoderLowmem(true), zstd.WithDecoderConcurrency(blocks),
		zstd.IgnoreChecksum(true))
}

// copySummed copies size bytes from r to w and returns their sha256, which is
// computed beside.
func copySummed(w io.Writer, r io.Reader, size int64) ([]byte, error) {
	const buffers, each = 4, 256 << 10
	free, filled := make(chan []byte, buffers), make(chan []byte, buffers)
	for range buffers {
		free <- make([]byte, each)
	}
	sum, done := sha256.New(), make(chan struct{})
	go func() {
		defer close(done)
		for b := range filled {
			sum.Write(b)
			free <- b[:each]
		}
	}()
	var err error
	for err == nil && size > 0 {
		// Nobody else takes a buffer, so it is safe to write it while it is free.
		b := <-free
		b = b[:min(each, size)]
		if _, err = io.ReadFull(r, b); err == nil {
			filled <- b
			_, err = w.Write(b)
			size -= int64(len(b))
		}
	}
	close(filled)
	<-done
	return sum.Sum(nil), err
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// A target remembers why it stopped.
type target struct {
	w   io.Writer
	err error
}

func (t *target) Write(p []byte) (int, error) {
	n, err := t.w.Write(p)
	t.err = err
	return n, err
}
