package bundle

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"airlift/bundle/head"
	"airlift/internal/atomicfile"
	"airlift/internal/fault"
	"airlift/internal/interrupt"
	"airlift/internal/space"
)

// A Summary describes a written bundle file. Sizes are in bytes.
type Summary struct {
	Size          int64  // of the file
	SHA256        string // of the file, lower-case hex
	PayloadOffset int64  // in the file
	PayloadSize   int64  // compressed
	UnpackedSize  int64  // of the installer and all entries
}

// Executables are the launcher, with which the file begins, and the installer, which the
// launcher starts.
type Executables struct {
	Launcher, Installer []byte
}

// A Draft is a bundle file that is complete and on the disk, but has a temporary name next to its
// path.
type Draft struct {
	Summary
	path string
	file *atomicfile.File
}

// WriteDraft writes the bundle with the executables and the entries of the manifest, mode 0755, to a
// temporary file next to path. It calls open once for every entry, from several goroutines. The content
// must have the size and sha256 of the manifest. The caller must call Discard.
//
// The bytes depend only on executables, manifest, entries and level. On an error, or when ctx is
// cancelled, the temporary file is removed.
func WriteDraft(ctx context.Context, path string, executables Executables, m *Manifest, level Level, open func(Entry) (io.ReadCloser, error), p Progress) (*Draft, error) {
	manifest, err := m.Encode()
	// A rename would also replace a device.
	if i, statErr := os.Stat(path); err == nil && statErr == nil && !i.Mode().IsRegular() {
		err = fault.New(fault.Usage, "%q is not a regular file", path).Hint("choose another path with --out")
	}
	if err != nil {
		return nil, (&Draft{path: path}).failed(err)
	}
	var t head.Trailer
	d, err := newDraft(ctx, path, func(f *os.File) error {
		t, err = writeParts(ctx, f, executables, m, manifest, level, open, p)
		return err
	})
	if err != nil {
		return nil, err
	}
	d.PayloadOffset, d.PayloadSize = int64(t.PayloadOffset), int64(t.PayloadSize)
	d.UnpackedSize = int64(t.InstallerSize) + m.UnpackedSize()
	return d, nil
}

// CopyDraft is WriteDraft for a bundle that exists: write writes its bytes.
func CopyDraft(ctx context.Context, path string, write func(io.Writer) error) (*Draft, error) {
	return newDraft(ctx, path, func(f *os.File) error { return write(f) })
}

func newDraft(ctx context.Context, path string, write func(*os.File) error) (d *Draft, err error) {
	d = &Draft{path: path}
	if d.file, err = atomicfile.Create(path); err == nil {
		err = write(d.file.File)
	}
	if err == nil { // read the file again instead of hashing while writing: the header is written last
		d.Size, d.SHA256, err = sumFile(ctx, d.file.File)
	}
	if err == nil {
		err = d.file.Finish(0o755)
	}
	if err = cmp.Or(err, ctx.Err()); err != nil {
		d.Discard()
		return nil, d.failed(err)
	}
	return d, nil
}

// Open opens the file. Errors, and its Path, have the name that it gets.
func (d *Draft) Open() (*File, error) {
	file, err := os.Open(d.file.Name())
	if err != nil {
		return nil, fault.Wrap(err, fault.Bundle, "")
	}
	return OpenFile(file, d.path)
}

// Replace gives the file its name. It replaces a file that has the name.
func (d *Draft) Replace() error {
	return d.failed(d.file.Replace())
}

// PlaceNew gives the file its name. An existing file is not replaced; the error is then
// fs.ErrExist.
func (d *Draft) PlaceNew() error {
	return d.failed(d.file.PlaceNew())
}

// Discard removes the file, unless it has its name. A deferred call does no harm.
func (d *Draft) Discard() {
	if d.file != nil {
		d.file.Discard()
	}
}

func (d *Draft) failed(err error) error {
	if err == nil {
		return nil
	}
	return space.Explain(filepath.Dir(d.path), fmt.Errorf("writing %s: %w", d.path, err))
}

// writeParts writes everything to the empty file f.
func writeParts(ctx context.Context, f *os.File, executables Executables, m *Manifest, manifest []byte, level Level, open func(Entry) (io.ReadCloser, error), p Progress) (head.Trailer, error) {
	out := bufio.NewWriterSize(f, 1<<20)
	if _, err := out.Write(executables.Launcher); err != nil {
		return head.Trailer{}, err
	}
	if err := out.Flush(); err != nil {
		return head.Trailer{}, err
	}
	// Readers expect the header at the end of the ELF image.
	size := int64(len(executables.Launcher))
	if end, ok := head.ELFEnd(f); ok && end != size {
		return head.Trailer{}, fmt.Errorf("the launcher has %d bytes after its ELF image", size-end)
	}
	// The header is written at the end, when the file's size is known.
	if _, err := out.Write(make([]byte, head.HeaderSize)); err != nil {
		return head.Trailer{}, err
	}

	t := head.Trailer{
		PayloadOffset:   uint64(size) + head.HeaderSize,
		ManifestSize:    uint64(len(manifest)),
		InstallerSize:   uint64(len(executables.Installer)),
		LauncherSHA256:  sha256.Sum256(executables.Launcher),
		ManifestSHA256:  sha256.Sum256(manifest),
		InstallerSHA256: sha256.Sum256(executables.Installer),
	}
	var digester head.Digester
	w := payloadWriter{out: io.MultiWriter(out, &digester), dir: filepath.Dir(f.Name()), level: level, progress: p}
	w.open = func(e Entry) (io.ReadCloser, error) {
		switch e.Name {
		case ManifestName:
			return io.NopCloser(bytes.NewReader(manifest)), nil
		case InstallerName:
			return io.NopCloser(bytes.NewReader(executables.Installer)), nil
		}
		return open(e)
	}
	if err := w.write(ctx, &t, m.Entries); err != nil {
		return head.Trailer{}, err
	}
	if t.PayloadSize > head.MaxPayload {
		return head.Trailer{}, fmt.Errorf("the payload has %d bytes, more than the %d allowed", t.PayloadSize, int64(head.MaxPayload))
	}
	digests, sum := digester.Encode()
	t.DigestsSHA256 = sum
	if _, err := out.Write(append(digests, t.Encode()...)); err != nil {
		return head.Trailer{}, err
	}
	if err := out.Flush(); err != nil {
		return head.Trailer{}, err
	}
	_, err := f.WriteAt(head.Header{FileSize: t.FileSize()}.Encode(), size)
	return t, err
}

func sumFile(ctx context.Context, f *os.File) (int64, string, error) {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return 0, "", err
	}
	sum := sha256.New()
	n, err := io.Copy(sum, interrupt.Reader(ctx, f))
	return n, hex.EncodeToString(sum.Sum(nil)), err
}
