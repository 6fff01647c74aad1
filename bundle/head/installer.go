package head

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"os"

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
	z, err := zstd.NewReader(bufio.NewReaderSize(payload, 1<<20),
		zstd.WithDecoderMaxWindow(MaxWindow), zstd.WithDecoderLowmem(true), zstd.WithDecoderConcurrency(1))
	if err != nil {
		return ReadError(path, err)
	}
	defer z.Close()

	size := int64(t.InstallerSize)
	before := HeaderLen(int64(t.ManifestSize)) + Padded(int64(t.ManifestSize)) + HeaderLen(size)
	if _, err := io.CopyN(io.Discard, z, before); err != nil {
		return Damaged(path, "its payload's beginning: %w", unexpected(err))
	}
	sum := sha256.New()
	out := &target{w: w}
	if _, err := io.CopyBuffer(io.MultiWriter(out, sum), io.LimitReader(z, size), make([]byte, 256<<10)); out.err != nil {
		return out.err
	} else if err != nil {
		return Damaged(path, "its installer: %w", unexpected(err))
	}
	if out.n != size {
		return Damaged(path, "its installer: %w", io.ErrUnexpectedEOF)
	}
	if got := sum.Sum(nil); !bytes.Equal(got, t.InstallerSHA256[:]) {
		return Damaged(path, "its installer has sha256 %x, its trailer says %x", got, t.InstallerSHA256)
	}
	return nil
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// A target remembers how much it took and why it stopped.
type target struct {
	w   io.Writer
	n   int64
	err error
}

func (t *target) Write(p []byte) (int, error) {
	n, err := t.w.Write(p)
	t.n += int64(n)
	t.err = err
	return n, err
}
