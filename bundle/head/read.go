package head

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"airlift/internal/fault"
)

const (
	// MaxManifest limits the memory that a reader needs for a manifest. A bundle of
	// forty entries needs about 20 kB.
	MaxManifest = 16 << 20

	// MaxEntry is the maximum size of an entry: 1 TiB, far above any image layer, and
	// small enough that sums of sizes do not overflow.
	MaxEntry = 1 << 40
)

// ErrNoPayload is wrapped by the error about an executable without a payload.
var ErrNoPayload = errors.New("without a payload")

// Read reads only the header and the trailer of file, so it is fast. It still
// distinguishes a truncated or padded copy from a complete one. Its errors carry
// fault.Bundle and name path.
//
// content reads the file by the offsets of its bundle: it is file, or a *Thin for a thin file.
func Read(file *os.File, path string) (t Trailer, content io.ReaderAt, err error) {
	i, err := file.Stat()
	if err != nil {
		return Trailer{}, nil, fault.Wrap(err, fault.Bundle, "")
	}
	if !i.Mode().IsRegular() {
		return Trailer{}, nil, fault.New(fault.Bundle, "%s is not a regular file", path)
	}
	return ReadAt(file, i.Size(), path)
}

// ReadAt is Read for content of size bytes that is not a single file on the disk.
func ReadAt(file io.ReaderAt, size int64, path string) (t Trailer, content io.ReaderAt, err error) {
	r := reader{file: file, path: path, size: size}
	if t, err = r.read(); err != nil {
		return Trailer{}, nil, err
	}
	if t.IsThin(size) {
		return t, newThin(file, path, t), nil
	}
	return t, file, nil
}

type reader struct {
	file io.ReaderAt
	path string
	size int64
}

func (r *reader) read() (Trailer, error) {
	var tail [TrailerSize]byte
	n := min(r.size, TrailerSize)
	if _, err := r.file.ReadAt(tail[TrailerSize-n:], r.size-n); err != nil {
		return Trailer{}, ReadError(r.path, err)
	}
	t, err := DecodeTrailer(tail[:])
	if v := versionError(0); errors.As(err, &v) {
		return Trailer{}, r.otherVersion(v)
	}
	if errors.Is(err, errDamagedFrame) {
		return Trailer{}, r.damaged("its trailer (last %d bytes) does not match its checksum", TrailerSize)
	}
	if err != nil {
		return Trailer{}, r.diagnose()
	}
	if t.FileSize() != uint64(r.size) && !t.IsThin(r.size) {
		return Trailer{}, r.damaged("it has %d bytes, but its trailer expects %d", r.size, t.FileSize())
	}
	if !t.partsFit() {
		return Trailer{}, r.damaged("according to its trailer, the first two parts of the payload have %d and %d bytes of %d", t.HeadSize, t.BinariesSize, t.PayloadSize)
	}
	if t.ManifestSize > MaxManifest {
		return Trailer{}, r.damaged("its manifest has %d bytes, more than the %d allowed", t.ManifestSize, MaxManifest)
	}
	if t.InstallerSize > MaxEntry {
		return Trailer{}, r.damaged("its installer has %d bytes, more than the %d allowed", t.InstallerSize, int64(MaxEntry))
	}
	var b [HeaderSize]byte
	if _, err := r.file.ReadAt(b[:], int64(t.PayloadOffset)-HeaderSize); err != nil {
		return Trailer{}, ReadError(r.path, err)
	}
	if h, err := decodeHeader(b[:]); err != nil || h.FileSize != t.FileSize() {
		return Trailer{}, r.damaged("its header (%d bytes at offset %d) does not match its trailer", HeaderSize, int64(t.PayloadOffset)-HeaderSize)
	}
	return t, nil
}

// diagnose finds out why the file has no trailer at its end.
func (r *reader) diagnose() error {
	launcher, ok := ELFEnd(r.file)
	if !ok {
		return r.notBundle("it is not an executable with a payload")
	}
	if r.size < launcher {
		return r.truncated(fmt.Sprintf("it has %d bytes, but its launcher alone has %d", r.size, launcher))
	}
	if r.size == launcher {
		return fault.New(fault.Bundle, "%s is an executable %w", r.path, ErrNoPayload).
			Hint("use the file that bundle build wrote; tools such as strip remove the payload")
	}
	var b [HeaderSize]byte
	if n, err := r.file.ReadAt(b[:], launcher); errors.Is(err, io.EOF) {
		if bytes.HasPrefix(Header{}.Encode(), b[:min(n, 16)]) { // all headers are the same up to the magic
			return r.truncated(fmt.Sprintf("it ends %d bytes after its launcher", n))
		}
		return r.notBundle("the data after the executable is not a payload")
	} else if err != nil {
		return ReadError(r.path, err)
	}
	h, err := decodeHeader(b[:])
	var v versionError
	switch {
	case errors.As(err, &v):
		return r.otherVersion(v)
	case errors.Is(err, errNoFrame):
		return r.notBundle("the data after the executable is not a payload")
	case err != nil:
		return r.damaged("its header does not match its checksum and its trailer is missing")
	case uint64(r.size) < h.FileSize:
		return r.truncated(fmt.Sprintf("it has %d of %d bytes; %d are missing", r.size, h.FileSize, h.FileSize-uint64(r.size)))
	case uint64(r.size) > h.FileSize:
		return r.damaged("it has %d bytes, expected %d: data was appended", r.size, h.FileSize)
	default:
		return r.damaged("its last %d bytes are not a trailer", TrailerSize)
	}
}

// Hints that help the user.
const (
	hintCopy    = "copy the file again and compare its sha256 with the original's (sha256sum FILE)"
	HintRebuild = "copy the file again from the machine that built it, or build it again with bundle build"
)

// Damaged returns the error for a file with damaged content. A SourceError is no damage of the file.
func Damaged(path, format string, args ...any) error {
	why := fmt.Errorf(format, args...)
	if err := ofSource(path, why); err != nil {
		return err
	}
	return fault.New(fault.Bundle, "%s is damaged: %w", path, why).Hint(hintCopy)
}

// ReadError returns the error for a file that cannot be read.
func ReadError(path string, err error) error {
	if err := ofSource(path, err); err != nil {
		return err
	}
	return fault.New(fault.Bundle, "reading %s: %w", path, err)
}

func (r *reader) damaged(format string, args ...any) error { return Damaged(r.path, format, args...) }

func (r *reader) truncated(why string) error {
	return fault.New(fault.Bundle, "%s is an incomplete copy: %s", r.path, why).Hint(hintCopy)
}

func (r *reader) notBundle(why string) error {
	return fault.New(fault.Bundle, "%s is not a bundle: %s", r.path, why).Hint("name a file that bundle build wrote")
}

func (r *reader) otherVersion(v versionError) error {
	return fault.New(fault.Bundle, "%s has %w; this release reads version %d", r.path, v, FormatVersion).
		Hint("build the file again with this release's bundle build, or use the bundle command of the release that built it")
}
