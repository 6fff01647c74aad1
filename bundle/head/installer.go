package head

import (
	"errors"
	"io"
	"runtime"

	"github.com/klauspost/compress/zstd"
)

// MaxWindow is the largest window of a frame: 128 MiB, the most that the zstd command
// decodes without an option (--long=27).
const MaxWindow = 128 << 20

// CopyInstaller decompresses the installer from p, the payload of the file called path
// with the trailer t, to w. After an error, the written bytes must not be used. An error
// about the file carries fault.Bundle; an error of w is returned unchanged.
func CopyInstaller(w io.Writer, p *Payload, path string, t Trailer) error {
	z, err := newDecoder(p.Section(int64(t.PayloadOffset), int64(t.HeadSize)))
	if err != nil {
		return ReadError(path, err)
	}
	defer z.Close()

	before := HeaderLen(int64(t.ManifestSize)) + Padded(int64(t.ManifestSize)) + HeaderLen(int64(t.InstallerSize))
	if _, err := io.CopyN(io.Discard, z, before); err != nil {
		return Damaged(path, "the start of its payload: %w", unexpected(err))
	}
	out := &target{w: w, left: int64(t.InstallerSize)}
	_, err = z.WriteTo(out)
	if out.err != nil {
		return out.err
	}
	if out.left == 0 { // the installer is complete; what follows does not matter here
		return nil
	}
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	return Damaged(path, "its installer: %w", err)
}

// newDecoder decodes on all cores, because the user waits for it at each start. The
// frame's checksum is not reached.
func newDecoder(r io.Reader) (*zstd.Decoder, error) {
	blocks := 4 // in the decoder's three stages
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

// A target accepts a number of bytes, and remembers its error.
type target struct {
	w    io.Writer
	left int64
	err  error
}

var errEnough = errors.New("the whole installer has been read")

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
