package blobs

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"

	"airlift/bundle"
	"airlift/internal/fault"
)

// ErrDiffers is wrapped by the error about an encoder that produces different bytes in this release.
var ErrDiffers = errors.New("produces different bytes in this release")

// Document returns the source of an index, a manifest or a config, which the bundle always has.
func Document(d bundle.Descriptor) *Source {
	return &Source{Descriptor: d, entry: bundle.BlobName(d.Digest)}
}

// Entry is the name of the entry from which the blob is made: the blob itself, or the uncompressed layer.
func (s *Source) Entry() string { return s.entry }

// Compresses reports whether the blob is made by an encoder.
func (s *Source) Compresses() bool { return s.compress }

// FileOf returns the bundle that has the entry of a source: File or Base.
func (b *Bundle) FileOf(s *Source) *bundle.File {
	if s.inBase {
		return b.Base
	}
	return b.File
}

// A Writer makes a blob from the content of its entry, which is written to it.
type Writer struct {
	source *Source
	sum    *counter
	out    io.Writer
	end    func() error
}

// NewWriter returns a writer that writes the blob to w. The caller must Close it, also after an error.
func (s *Source) NewWriter(w io.Writer) (*Writer, error) {
	sum := &counter{hash: sha256.New(), w: w, most: s.Size}
	if !s.compress {
		return &Writer{s, sum, sum, func() error { return nil }}, nil
	}
	z, err := s.recipe.NewWriter(sum)
	if err != nil {
		return nil, s.failed(err)
	}
	return &Writer{s, sum, z, z.Close}, nil
}

// Write returns an error as soon as the blob is longer than its descriptor.
func (w *Writer) Write(p []byte) (int, error) {
	n, err := w.out.Write(p)
	return n, w.source.failed(err)
}

// Close writes the rest of the blob. It returns an error if the blob has another digest.
func (w *Writer) Close() error {
	if err := w.end(); err != nil {
		return w.source.failed(err)
	}
	s := w.source
	got := fmt.Sprintf("sha256:%x", w.sum.hash.Sum(nil))
	switch {
	case got == s.Digest:
		return nil
	case !s.compress:
		return fault.New(fault.Bundle, "the entry %q has the digest %s", s.entry, got).Hint("run bundle verify")
	}
	return fault.New(fault.Failure, "compressing the layer %s: %s %w: %s", s.Digest, s.recipe.Encoder, ErrDiffers, got).
		Hint("use the release of Airlift that built the file, or build it again with this one")
}

func (s *Source) failed(err error) error {
	if errors.Is(err, errTooLong) && s.compress {
		err = fmt.Errorf("%s %w: %w", s.recipe.Encoder, ErrDiffers, err)
	}
	if err == nil {
		return nil
	}
	return fmt.Errorf("making the blob %s: %w", s.Digest, err)
}
