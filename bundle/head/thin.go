package head

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"airlift/internal/fault"
)

// A Thin reads a thin file by the offsets of its bundle. A thin file has the bytes of the bundle up to the
// end of the last piece with bytes of the part head, then the digests and the trailer. The bytes between
// them come from a source, which Attach sets. Several goroutines may use it.
type Thin struct {
	file     io.ReaderAt
	path     string
	from, to int64 // offsets in the bundle of the bytes that are not in the file
	source   atomic.Pointer[io.ReaderAt]
}

// headEnd is the offset in the bundle of the end of the last piece with bytes of the part head.
func (t Trailer) headEnd() int64 {
	pieces := (t.HeadSize + PieceSize - 1) / PieceSize
	return int64(t.PayloadOffset + min(pieces*PieceSize, t.PayloadSize))
}

// ThinSize is the size of a thin file of the bundle in bytes. The fields must not overflow.
func (t Trailer) ThinSize() int64 {
	return t.headEnd() + int64(DigestsSize(t.PayloadSize)) + TrailerSize
}

// IsThin reports whether a file of size bytes with this trailer is thin.
func (t Trailer) IsThin(size int64) bool {
	whole := t.FileSize()
	return whole > 0 && uint64(size) != whole && t.partsFit() && t.ThinSize() == size
}

func newThin(file io.ReaderAt, path string, t Trailer) *Thin {
	return &Thin{file: file, path: path, from: t.headEnd(), to: t.DigestsOffset()}
}

// Missing returns the range of the bundle that is not in the file: offsets of its first byte and of the
// first byte after it.
func (t *Thin) Missing() (from, to int64) { return t.from, t.to }

// Attach sets the source of the bytes that are not in the file, or removes it if source is nil. It reads
// the whole bundle by its offsets.
func (t *Thin) Attach(source io.ReaderAt) {
	if source == nil {
		t.source.Store(nil)
		return
	}
	t.source.Store(&source)
}

// ReadAt reads bytes of the bundle.
func (t *Thin) ReadAt(b []byte, at int64) (n int, err error) {
	for n < len(b) && err == nil {
		var m int
		m, err = t.read(b[n:], at+int64(n))
		n += m
	}
	return n, err
}

// read reads from the first of the three sections that has bytes at offset at.
func (t *Thin) read(b []byte, at int64) (int, error) {
	switch {
	case at < t.from:
		return t.file.ReadAt(b[:min(int64(len(b)), t.from-at)], at)
	case at >= t.to:
		return t.file.ReadAt(b, at-(t.to-t.from))
	}
	b = b[:min(int64(len(b)), t.to-at)]
	source, err := t.missing(at, len(b))
	if err != nil {
		return 0, err
	}
	n, err := source.ReadAt(b, at)
	if err != nil && n < len(b) {
		return n, &SourceError{err}
	}
	return n, nil
}

// ReadVerified implements Verifier.
func (t *Thin) ReadVerified(ctx context.Context, b []byte, at int64, matches func([]byte) bool) error {
	if at < t.from || at+int64(len(b)) > t.to {
		return readVerified(ctx, struct{ io.ReaderAt }{t}, b, at, matches)
	}
	source, err := t.missing(at, len(b))
	if err != nil {
		return err
	}
	if err := readVerified(ctx, source, b, at, matches); err != nil {
		return &SourceError{err}
	}
	return nil
}

// missing returns the source of size bytes at an offset.
func (t *Thin) missing(at int64, size int) (io.ReaderAt, error) {
	if source := t.source.Load(); source != nil {
		return *source, nil
	}
	return nil, &SourceError{fault.New(fault.Bundle, "%s is a thin file: it does not have bytes %d to %d of the bundle", t.path, at, at+int64(size)-1).Hint(HintThin)}
}

// HintThin is the hint for a thin file where the whole bundle is needed.
const HintThin = "use the whole file that bundle build wrote; a thin file only works where a cluster's control planes keep the whole file"

// NeedsWhole returns the error for a thin file where the whole bundle is needed.
func NeedsWhole(path string) error {
	return fault.New(fault.Usage, "%s is a thin file: it has only the installer, and not the rest of the bundle", path).Hint(HintThin)
}

// A SourceError is why bytes that a thin file does not have could not be read. The file itself is intact.
type SourceError struct{ err error }

func (s *SourceError) Error() string { return s.err.Error() }
func (s *SourceError) Unwrap() error { return s.err }

// A Verifier reads the same bytes from several places.
type Verifier interface {
	// ReadVerified reads len(b) bytes at an offset into b. While matches rejects them, it reads them
	// from another place. It returns an error if no place has bytes that match, or when ctx is cancelled.
	ReadVerified(ctx context.Context, b []byte, at int64, matches func([]byte) bool) error
}

// readVerified reads bytes that match. The error about others is a DamagedPiece.
func readVerified(ctx context.Context, r io.ReaderAt, b []byte, at int64, matches func([]byte) bool) error {
	if v, ok := r.(Verifier); ok {
		return v.ReadVerified(ctx, b, at, matches)
	}
	if n, err := r.ReadAt(b, at); err != nil && n < len(b) {
		return err
	}
	if !matches(b) {
		return &DamagedPiece{First: at, Last: at + int64(len(b)) - 1}
	}
	return nil
}

// ofSource returns err with the name of the file if a source caused it, or else nil.
func ofSource(path string, err error) error {
	if s := (*SourceError)(nil); errors.As(err, &s) {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	return nil
}
