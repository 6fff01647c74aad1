package head

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"airlift/fault"
)

const (
	// MaxManifest bounds what a reader holds in memory for a manifest. A
	// bundle of forty entries needs about 20 kB.
	MaxManifest = 16 << 20

	// MaxEntry is the largest an entry of the payload may be: 1 TiB, far above
	// any image layer and far below where sums of sizes overflow.
	MaxEntry = 1 << 40
)

// ErrNoPayload is in the error about a program that no bundle was made of.
var ErrNoPayload = errors.New("without a payload")

// Read reads the header and the trailer of file and nothing else, so it
// takes no time, and yet it tells a copy that was cut short or padded from a
// whole one. Its errors carry fault.Bundle and call the file path.
func Read(file *os.File, path string) (Trailer, error) {
	r := reader{file: file, path: path}
	return r.read()
}

type reader struct {
	file *os.File
	path string
	size int64
}

func (r *reader) read() (Trailer, error) {
	i, err := r.file.Stat()
	if err != nil {
		return Trailer{}, fault.Wrap(err, fault.Bundle, "")
	}
	if !i.Mode().IsRegular() {
		return Trailer{}, fault.New(fault.Bundle, "", "%s is not a regular file", r.path)
	}
	r.size = i.Size()

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
		return Trailer{}, r.damaged("its last %d bytes, the trailer, do not match their checksum", TrailerSize)
	}
	if err != nil {
		return Trailer{}, r.diagnose()
	}
	if t.FileSize() != uint64(r.size) {
		return Trailer{}, r.damaged("it has %d bytes, its trailer says %d", r.size, t.FileSize())
	}
	if !t.partsFit() {
		return Trailer{}, r.damaged("its trailer says that the first two parts of the payload have %d and %d bytes of %d", t.HeadSize, t.ProgramsSize, t.PayloadSize)
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
		return Trailer{}, r.damaged("its header, %d bytes at offset %d, does not agree with its trailer", HeaderSize, int64(t.PayloadOffset)-HeaderSize)
	}
	return t, nil
}

// diagnose says why a file without a trailer at its end has none.
func (r *reader) diagnose() error {
	program, ok := ELFEnd(r.file)
	if !ok {
		return r.notBundle("it is neither complete nor a program with a payload")
	}
	if r.size < program {
		return r.truncated(fmt.Sprintf("it has %d bytes, and its program alone has %d", r.size, program))
	}
	if r.size == program {
		return fault.New(fault.Bundle, "use the file that bundle build wrote; tools such as strip remove the payload",
			"%s is a program %w", r.path, ErrNoPayload)
	}
	var b [HeaderSize]byte
	if n, err := r.file.ReadAt(b[:], program); errors.Is(err, io.EOF) {
		if bytes.HasPrefix(Header{}.Encode(), b[:min(n, 16)]) { // up to the magic every header is the same
			return r.truncated(fmt.Sprintf("it ends %d bytes behind its program", n))
		}
		return r.notBundle("there is something behind the program that is not a payload")
	} else if err != nil {
		return ReadError(r.path, err)
	}
	h, err := decodeHeader(b[:])
	var v versionError
	switch {
	case errors.As(err, &v):
		return r.otherVersion(v)
	case errors.Is(err, errNoFrame):
		return r.notBundle("there is something behind the program that is not a payload")
	case err != nil:
		return r.damaged("its header does not match its checksum and its trailer is missing")
	case uint64(r.size) < h.FileSize:
		return r.truncated(fmt.Sprintf("it has %d of %d bytes, %d are missing", r.size, h.FileSize, h.FileSize-uint64(r.size)))
	case uint64(r.size) > h.FileSize:
		return r.damaged("it has %d bytes and should have %d: something was appended", r.size, h.FileSize)
	default:
		return r.damaged("its last %d bytes are not a trailer", TrailerSize)
	}
}

// Hints for faults a user can do something about.
const (
	hintCopy    = "copy the file again and compare its sha256 with the original's (sha256sum FILE)"
	HintRebuild = "get the file again from where it was built, or build it again with bundle build"
)

// Damaged is the error that the file at path is not what it was written as.
func Damaged(path, format string, args ...any) error {
	return fault.New(fault.Bundle, hintCopy, "%s is damaged: %w", path, fmt.Errorf(format, args...))
}

// ReadError is the error that the file at path could not be read.
func ReadError(path string, err error) error {
	return fault.New(fault.Bundle, "", "reading %s: %w", path, err)
}

func (r *reader) damaged(format string, args ...any) error { return Damaged(r.path, format, args...) }

func (r *reader) truncated(why string) error {
	return fault.New(fault.Bundle, hintCopy, "%s is an incomplete copy: %s", r.path, why)
}

func (r *reader) notBundle(why string) error {
	return fault.New(fault.Bundle, "name a file that bundle build wrote", "%s is not a bundle: %s", r.path, why)
}

func (r *reader) otherVersion(v versionError) error {
	return fault.New(fault.Bundle, "use the bundle program of the release that wrote the file, or build it again with this one",
		"%s has %w; this program reads version %d", r.path, v, FormatVersion)
}
