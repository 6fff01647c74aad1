package bundle

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"airlift/fault"
)

// Options say how to write a bundle. The zero value is what users want.
type Options struct {
	Level Level
}

// A Summary describes a bundle file that was written. Sizes are in bytes.
type Summary struct {
	Size          int64  // of the file
	SHA256        string // of the file, lower-case hex
	PayloadOffset int64  // from the file's first byte
	PayloadSize   int64  // compressed
	UnpackedSize  int64  // of all entries
}

// WriteFile writes the bundle of the stub, an install program, and what the
// manifest lists to path, mode 0755. It calls open once for every entry, in
// order; each must deliver exactly the size and sha256 the manifest says.
//
// The bytes depend on nothing but stub, manifest, entries and options. They go
// to a temporary file beside path that is renamed when it is complete and on
// the disk: on an error, or when ctx ends, whatever stood at path still stands
// there and nothing else is left.
func WriteFile(ctx context.Context, path string, stub io.Reader, m *Manifest, o Options, open func(Entry) (io.ReadCloser, error), p Progress) (Summary, error) {
	s, err := writeFile(ctx, path, stub, m, o, open, p)
	if err != nil {
		return Summary{}, fmt.Errorf("writing %s: %w", path, err)
	}
	return s, nil
}

func writeFile(ctx context.Context, path string, stub io.Reader, m *Manifest, o Options, open func(Entry) (io.ReadCloser, error), p Progress) (s Summary, err error) {
	manifest, err := m.Encode()
	if err != nil {
		return Summary{}, err
	}
	// A rename would put a file in the place of a device, too.
	if i, err := os.Stat(path); err == nil && !i.Mode().IsRegular() {
		return Summary{}, fault.New(fault.Usage, "name a file that may be replaced", "%q is not a regular file", path)
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*.partial")
	if err != nil {
		return Summary{}, err
	}
	defer func() {
		f.Close()
		if err != nil {
			os.Remove(f.Name())
		}
	}()

	t, err := writeParts(ctx, f, stub, m, manifest, o, open, p)
	if err != nil {
		return Summary{}, err
	}
	s = Summary{
		PayloadOffset: int64(t.payloadOffset),
		PayloadSize:   int64(t.payloadSize),
		UnpackedSize:  m.UnpackedSize(),
	}
	// Read back rather than summed on the way: the header was written last.
	if s.Size, s.SHA256, err = sumFile(ctx, f); err != nil {
		return Summary{}, err
	}
	if err := f.Chmod(0o755); err != nil {
		return Summary{}, err
	}
	if err := f.Sync(); err != nil {
		return Summary{}, err
	}
	if err := f.Close(); err != nil {
		return Summary{}, err
	}
	if err := ctx.Err(); err != nil {
		return Summary{}, err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return Summary{}, err
	}
	return s, syncDir(filepath.Dir(path))
}

// writeParts writes stub, header, payload and trailer to the empty file f.
func writeParts(ctx context.Context, f *os.File, stub io.Reader, m *Manifest, manifest []byte, o Options, open func(Entry) (io.ReadCloser, error), p Progress) (trailer, error) {
	out := bufio.NewWriterSize(f, 1<<20)
	stubSum, payloadSum := sha256.New(), sha256.New()

	stubSize, err := io.Copy(io.MultiWriter(out, stubSum), contextReader{ctx, stub})
	if err != nil {
		return trailer{}, fmt.Errorf("copying the install program: %w", err)
	}
	if err := out.Flush(); err != nil {
		return trailer{}, err
	}
	// Readers look for the header at the end of the ELF image.
	if end, ok := elfEnd(f); ok && end != stubSize {
		return trailer{}, fmt.Errorf("the install program has %d bytes behind its ELF image", stubSize-end)
	}
	// The header is known only when everything behind it is.
	if _, err := out.Write(make([]byte, headerSize)); err != nil {
		return trailer{}, err
	}

	var payloadSize countingWriter
	w, err := newPayloadWriter(io.MultiWriter(out, payloadSum, &payloadSize), m, manifest, o, p)
	if err != nil {
		return trailer{}, err
	}
	for _, e := range m.Entries {
		if err := addEntry(ctx, w, e, open); err != nil {
			w.zstd.Close() // ends its goroutines; what it writes is thrown away
			return trailer{}, fmt.Errorf("adding %s: %w", e.Name, err)
		}
	}
	if err := w.close(); err != nil {
		return trailer{}, err
	}

	t := trailer{
		payloadOffset: uint64(stubSize) + headerSize,
		payloadSize:   uint64(payloadSize),
		manifestSize:  uint64(len(manifest)),
		stubSHA256:    [sha256.Size]byte(stubSum.Sum(nil)),
		payloadSHA256: [sha256.Size]byte(payloadSum.Sum(nil)),
		manifestSHA:   sha256.Sum256(manifest),
	}
	if _, err := out.Write(t.encode()); err != nil {
		return trailer{}, err
	}
	if err := out.Flush(); err != nil {
		return trailer{}, err
	}
	_, err = f.WriteAt(header{fileSize: t.fileSize()}.encode(), stubSize)
	return t, err
}

func addEntry(ctx context.Context, w *payloadWriter, e Entry, open func(Entry) (io.ReadCloser, error)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r, err := open(e)
	if err != nil {
		return err
	}
	defer r.Close()
	return w.add(ctx, r)
}

func sumFile(ctx context.Context, f *os.File) (int64, string, error) {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return 0, "", err
	}
	sum := sha256.New()
	n, err := io.Copy(sum, contextReader{ctx, f})
	return n, hex.EncodeToString(sum.Sum(nil)), err
}

// syncDir makes a rename in dir survive a power cut.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

type countingWriter int64

func (c *countingWriter) Write(p []byte) (int, error) {
	*c += countingWriter(len(p))
	return len(p), nil
}
