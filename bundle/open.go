package bundle

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"airlift/fault"
)

// A File is an open bundle. Its methods may be called from several goroutines
// at once, and any number of Streams may be read at once.
type File struct {
	path    string
	file    *os.File
	size    int64
	trailer trailer

	once     sync.Once
	manifest *Manifest
	err      error
}

// Open opens a bundle. It reads the two frames around the payload and nothing
// else, so it takes no time, and yet it tells a copy that was cut short or
// padded from a whole one. Errors about what the file is carry fault.Bundle.
func Open(path string) (*File, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fault.Wrap(err, fault.Bundle, "")
	}
	f := &File{path: path, file: file}
	if err := f.readFrames(); err != nil {
		file.Close()
		return nil, err
	}
	return f, nil
}

// Close closes the file. Streams that are still open will fail.
func (f *File) Close() error { return f.file.Close() }

// Path is the path the file was opened by.
func (f *File) Path() string { return f.path }

// Size is the size of the whole file in bytes.
func (f *File) Size() int64 { return f.size }

// PayloadOffset is where the payload begins, in bytes from the file's first.
func (f *File) PayloadOffset() int64 { return int64(f.trailer.payloadOffset) }

// PayloadSize is the compressed payload's size in bytes.
func (f *File) PayloadSize() int64 { return int64(f.trailer.payloadSize) }

// PayloadSHA256 is of the compressed payload, lower-case hex, as the trailer
// says; Verify compares it.
func (f *File) PayloadSHA256() string { return hexOf(f.trailer.payloadSHA256) }

// Manifest reads the manifest, compares it with the sha256 in the trailer and
// checks it (see DecodeManifest). It is read once; callers share the result
// and must not change it.
func (f *File) Manifest() (*Manifest, error) {
	f.once.Do(func() {
		s, err := f.Stream(context.Background())
		if err != nil {
			f.err = err
			return
		}
		f.manifest = s.manifest
		f.err = s.Close()
	})
	return f.manifest, f.err
}

func (f *File) readFrames() error {
	i, err := f.file.Stat()
	if err != nil {
		return fault.Wrap(err, fault.Bundle, "")
	}
	if !i.Mode().IsRegular() {
		return fault.New(fault.Bundle, "", "%s is not a regular file", f.path)
	}
	f.size = i.Size()

	var tail [trailerSize]byte
	if f.size < trailerSize {
		return f.diagnose()
	}
	if _, err := f.file.ReadAt(tail[:], f.size-trailerSize); err != nil {
		return f.readError(err)
	}
	t, err := decodeTrailer(tail[:])
	if v := versionError(0); errors.As(err, &v) {
		return f.newer(v)
	}
	if errors.Is(err, errDamagedFrame) {
		return f.damaged("its last %d bytes, the trailer, do not match their checksum", trailerSize)
	}
	if err != nil {
		return f.diagnose()
	}
	if t.fileSize() != uint64(f.size) {
		return f.damaged("it has %d bytes, its trailer says %d", f.size, t.fileSize())
	}
	if t.manifestSize > maxManifest {
		return f.damaged("its manifest has %d bytes, more than the %d allowed", t.manifestSize, maxManifest)
	}
	var b [headerSize]byte
	if _, err := f.file.ReadAt(b[:], int64(t.payloadOffset)-headerSize); err != nil {
		return f.readError(err)
	}
	if h, err := decodeHeader(b[:]); err != nil || h.fileSize != t.fileSize() {
		return f.damaged("its header, %d bytes at offset %d, does not agree with its trailer", headerSize, int64(t.payloadOffset)-headerSize)
	}
	f.trailer = t
	return nil
}

// ErrNoPayload is in the error about an install program that no bundle was made
// of.
var ErrNoPayload = errors.New("without a payload")

// diagnose says why a file without a trailer at its end has none.
func (f *File) diagnose() error {
	stub, ok := elfEnd(f.file)
	if !ok {
		return f.notBundle("it is neither complete nor an install program with a payload")
	}
	if f.size < stub {
		return f.truncated(fmt.Sprintf("it has %d bytes, and its program alone has %d", f.size, stub))
	}
	if f.size == stub {
		return fault.New(fault.Bundle, "use the file that bundle build wrote; tools such as strip remove the payload",
			"%s is a program %w", f.path, ErrNoPayload)
	}
	var b [headerSize]byte
	if n, err := f.file.ReadAt(b[:], stub); errors.Is(err, io.EOF) {
		if bytes.HasPrefix(header{}.encode(), b[:min(n, 16)]) { // up to the magic every header is the same
			return f.truncated(fmt.Sprintf("it ends %d bytes behind its program", n))
		}
		return f.notBundle("there is something behind the program that is not a payload")
	} else if err != nil {
		return f.readError(err)
	}
	h, err := decodeHeader(b[:])
	var v versionError
	switch {
	case errors.As(err, &v):
		return f.newer(v)
	case errors.Is(err, errNoFrame):
		return f.notBundle("there is something behind the program that is not a payload")
	case err != nil:
		return f.damaged("its header does not match its checksum and its trailer is missing")
	case uint64(f.size) < h.fileSize:
		return f.truncated(fmt.Sprintf("it has %d of %d bytes, %d are missing", f.size, h.fileSize, h.fileSize-uint64(f.size)))
	case uint64(f.size) > h.fileSize:
		return f.damaged("it has %d bytes and should have %d: something was appended", f.size, h.fileSize)
	default:
		return f.damaged("its last %d bytes are not a trailer", trailerSize)
	}
}

// Hints for faults a user can do something about.
const (
	hintCopy    = "copy the file again and compare its sha256 with the original's (sha256sum FILE)"
	hintRebuild = "get the file again from where it was built, or build it again with bundle build"
)

func (f *File) damaged(format string, args ...any) error {
	return fault.New(fault.Bundle, hintCopy, "%s is damaged: %w", f.path, fmt.Errorf(format, args...))
}

func (f *File) truncated(why string) error {
	return fault.New(fault.Bundle, hintCopy, "%s is an incomplete copy: %s", f.path, why)
}

func (f *File) notBundle(why string) error {
	return fault.New(fault.Bundle, "name a file that bundle build wrote", "%s is not a bundle: %s", f.path, why)
}

func (f *File) newer(v versionError) error {
	return fault.New(fault.Bundle, "use the bundle program of the release that wrote the file",
		"%s has %w; this program reads version %d", f.path, v, FormatVersion)
}

func (f *File) readError(err error) error {
	return fault.New(fault.Bundle, "", "reading %s: %w", f.path, err)
}

func hexOf(sum [32]byte) string { return hex.EncodeToString(sum[:]) }
