package bundle

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"airlift/bundle/head"
	"airlift/internal/fault"
)

// ErrNoPayload is wrapped by the error about an executable without a payload.
var ErrNoPayload = head.ErrNoPayload

// A File is an open bundle. Several goroutines may call its methods and read Streams at
// the same time.
type File struct {
	path    string
	file    io.ReaderAt // what is on the disk
	size    int64       // of file, in bytes
	content io.ReaderAt // reads file by the offsets of the whole bundle
	close   func() error
	trailer head.Trailer
	payload *head.Payload

	mu       sync.Mutex
	manifest *Manifest // nil before it is read
}

// Open opens a bundle. It only reads the frames around the payload, so it is fast. It
// still distinguishes a truncated or padded copy from a complete file. Errors about the
// contents of the file carry fault.Bundle. It also opens a thin file: see Thin.
func Open(path string) (*File, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fault.Wrap(err, fault.Bundle, "")
	}
	return OpenFile(file, path)
}

// OpenWhole is Open for what needs the whole bundle: a thin file is an error.
func OpenWhole(path string) (*File, error) {
	f, err := Open(path)
	if err == nil && f.Thin() {
		err = errors.Join(f.NeedsWhole(), f.Close())
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

// KeepBundle returns an error if the file at path is a bundle: a result of another kind must not
// replace what may be its last copy.
func KeepBundle(path string) error {
	if i, err := os.Stat(path); err != nil || !i.Mode().IsRegular() {
		return nil
	}
	file, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer file.Close()
	if _, _, err := head.Read(file, path); err != nil {
		return nil
	}
	return fault.New(fault.Usage, "%q is a bundle: it is not replaced by another kind of file", path).Hint("choose another path")
}

// OpenFile is Open for a file that is already open; path is used in errors. The File owns
// file, which is closed if there is an error.
func OpenFile(file *os.File, path string) (*File, error) {
	i, err := file.Stat()
	if err == nil && !i.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", path)
	}
	if err != nil {
		file.Close()
		return nil, fault.Wrap(err, fault.Bundle, "")
	}
	f, err := OpenAt(file, i.Size(), path)
	if err != nil {
		file.Close()
		return nil, err
	}
	f.close = file.Close
	return f, nil
}

// OpenAt is Open for size bytes that need not be one file on the disk.
func OpenAt(file io.ReaderAt, size int64, path string) (*File, error) {
	t, content, err := head.ReadAt(file, size, path)
	if err != nil {
		return nil, err
	}
	p, err := head.OpenPayload(content, path, t)
	if err != nil {
		return nil, err
	}
	return &File{path: path, file: file, size: size, content: content, close: func() error { return nil }, trailer: t, payload: p}, nil
}

// Close closes the file. Open Streams then fail.
func (f *File) Close() error { return f.close() }

// Path is the path that the file was opened with.
func (f *File) Path() string { return f.path }

// Size is the size of the file in bytes.
func (f *File) Size() int64 { return f.size }

// ID identifies the bundle: the sha256 of its trailer, which determines every byte of the whole file, in
// lower-case hex. A thin file has the ID of its bundle.
func (f *File) ID() string { return hexOf(sha256.Sum256(f.trailer.Encode())) }

// PayloadOffset is the offset of the payload in the file, in bytes.
func (f *File) PayloadOffset() int64 { return int64(f.trailer.PayloadOffset) }

// PayloadSize is the compressed payload's size in bytes.
func (f *File) PayloadSize() int64 { return int64(f.trailer.PayloadSize) }

// ManifestSize is the manifest's size in bytes.
func (f *File) ManifestSize() int64 { return int64(f.trailer.ManifestSize) }

// ManifestSHA256 is the sha256 of the manifest, in lower-case hex.
func (f *File) ManifestSHA256() string { return hexOf(f.trailer.ManifestSHA256) }

// DigestsSHA256 is the sha256 of the payload's digests, in lower-case hex.
func (f *File) DigestsSHA256() string { return hexOf(f.trailer.DigestsSHA256) }

// Manifest reads the manifest, compares it with its sha256 in the trailer and checks it
// (see DecodeManifest). It is read once, or again after an error; callers share the result
// and must not change it.
func (f *File) Manifest() (m *Manifest, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.manifest == nil {
		if m, err = f.readManifest(); err != nil {
			return nil, err
		}
		f.manifest = m
	}
	return f.manifest, nil
}

func (f *File) readManifest() (*Manifest, error) {
	s, err := f.headStream(context.Background())
	if err != nil {
		return nil, err
	}
	defer s.Close()
	_, content, err := s.Next()
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(content)
	if err != nil {
		return nil, err
	}
	m, err := DecodeManifest(text)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", f.path, err)
	}
	return m, checkParts(f, m)
}

// CopyInstaller writes the installer to w and compares it with its sha256.
func (f *File) CopyInstaller(ctx context.Context, w io.Writer) error {
	s, err := f.headStream(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	s.Skip(func(e Entry) bool { return e.Name != InstallerName })
	_, content, err := s.Next()
	if err == nil {
		_, err = io.CopyBuffer(struct{ io.Writer }{w}, content, make([]byte, 256<<10))
	}
	return err
}

// Installer is the payload's entry with the installer. It precedes the manifest's
// entries and is not one of them.
func (f *File) Installer() Entry { return f.headEntries()[1] }

func (f *File) headEntries() []Entry { return headEntries(f.trailer) }

func headEntries(t head.Trailer) []Entry {
	return []Entry{
		{Name: ManifestName, Size: int64(t.ManifestSize), SHA256: hexOf(t.ManifestSHA256)},
		{Name: InstallerName, Size: int64(t.InstallerSize), SHA256: hexOf(t.InstallerSHA256)},
	}
}

func (f *File) damaged(format string, args ...any) error {
	return head.Damaged(f.path, format, args...)
}

func (f *File) readError(err error) error { return head.ReadError(f.path, err) }

func hexOf(sum [32]byte) string { return hex.EncodeToString(sum[:]) }
