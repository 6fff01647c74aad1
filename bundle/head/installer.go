package head

import (
	"errors"
	"io"
	"runtime"

	"github.com/klauspost/compress/zstd"
)

// MaxWindow is the farthest a match may reach back: 128 MiB, the most a stock
// zstd decodes without being told to (its limit is --long=27).
const MaxWindow = 128 << 20

// CopyInstaller decompresses the installer from the head of p, the payload of
// a file called path with the trailer t, to w. What was written must not be used
// if there is an error. An error about the file carries fault.Bundle; one of w is
// returned as it is.
func CopyInstaller(w io.Writer, p *Payload, path string, t Trailer) error {
	z, err := newDecoder(p.Section(int64(t.PayloadOffset), int64(t.HeadSize)))
	if err != nil {
		return ReadError(path, err)
	}
	defer z.Close()

	before := HeaderLen(int64(t.ManifestSize)) + Padded(int64(t.ManifestSize)) + HeaderLen(int64(t.InstallerSize))
	if _, err := io.CopyN(io.Discard, z, before); err != nil {
		return Damaged(path, "its payload's beginning: %w", unexpected(err))
	}
	out := &target{w: w, left: int64(t.InstallerSize)}
	_, err = z.WriteTo(out)
	if out.err != nil {
		return out.err
	}
	if out.left == 0 { // whatever stands behind it
		return nil
	}
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	return Damaged(path, "its installer: %w", err)
}

// newDecoder decodes on all cores: a user waits for this each time. The frame's
// checksum stands behind what is read of it.
func newDecoder(r io.Reader) (*zstd.Decoder, error) {
	blocks := 4 // under way in the decoder's three stages
	if runtime.GOMAXPROCS(0) == 1 {
		blocks = 1
	}
	return zstd.NewReader(r,
		zstd.WithDecoderMaxWindow(MaxWindow), zstd.WithDecoderLowmem(true), zstd.WithDecoderConcurrency(blocks),
		zstd.IgnoreChecksum(true))
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// A target takes so many bytes, and remembers why it took less.
type target struct {
	w    io.Writer
	left int64
	err  error
}

var errEnough = errors.New("all has been read")

func (t *target) Write(p []byte) (int, error) {
	if t.left == 0 {
		return 0, errEnough
	}
	n, err := t.w.Write(p[:min(int64(len(p)), t.left)])
	t.left -= int64(n)
	if t.err = err; err == nil && t.left == 0 {
		err = errEnough
	}
	return n, err
}
