package bundle

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"path/filepath"

	"airlift/bundle/head"
	"airlift/internal/interrupt"
	"airlift/internal/space"
)

func (f *File) thin() *head.Thin {
	t, _ := f.content.(*head.Thin)
	return t
}

// Thin reports whether the file is thin: it has the launcher and the part head of the payload, and not the
// other parts. What needs them fails until a source is attached.
func (f *File) Thin() bool { return f.thin() != nil }

// NeedsWhole returns an error if the file is thin.
func (f *File) NeedsWhole() error {
	if !f.Thin() {
		return nil
	}
	return head.NeedsWhole(f.path)
}

// WholeSize is the size in bytes of the whole bundle, of which a thin file is a part.
func (f *File) WholeSize() int64 { return int64(f.trailer.FileSize()) }

// Attach sets the source of the bytes that a thin file does not have; nil removes it. It reads the whole
// bundle by its offsets. All bytes from it are compared with the digests in the thin file. A whole file
// needs no source.
func (f *File) Attach(source io.ReaderAt) {
	if t := f.thin(); t != nil {
		t.Attach(source)
	}
}

// present is the number of the payload's pieces that are in the file: all, or the first ones of a thin file.
func (f *File) present() int64 {
	t := f.thin()
	if t == nil {
		return f.payload.Pieces()
	}
	from, _ := t.Missing()
	return (from - f.PayloadOffset() + head.PieceSize - 1) / head.PieceSize
}

func (f *File) presentSize() int64 { return min(f.present()*head.PieceSize, f.PayloadSize()) }

// WriteThin writes the thin file of the bundle to path, mode 0755, and returns its size in bytes. What is
// written is compared with its digests. A file at path is replaced, unless it is a bundle. A small bundle,
// whose part head ends in its last piece, is its own thin file.
func WriteThin(ctx context.Context, f *File, path string) (size int64, err error) {
	if err := KeepBundle(path); err != nil {
		return 0, err
	}
	d, err := CopyDraft(ctx, path, func(w io.Writer) error {
		_, err := io.Copy(w, interrupt.Reader(ctx, f.thinContent()))
		return err
	})
	if err != nil {
		return 0, err
	}
	defer d.Discard()
	written, err := d.Open()
	if err != nil {
		return 0, err
	}
	err = written.Check(ctx, nil)
	if closed := written.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = d.Replace()
	}
	if err != nil {
		return 0, space.Explain(filepath.Dir(path), fmt.Errorf("writing %s: %w", path, err))
	}
	return d.Size, nil
}

func (f *File) thinContent() io.Reader {
	first, last := f.ThinParts()
	digests := io.NewSectionReader(f.content, f.trailer.DigestsOffset(), last-head.TrailerSize)
	return io.MultiReader(io.NewSectionReader(f.content, 0, first), digests, bytes.NewReader(f.trailer.Encode()))
}

// ThinParts returns how many bytes at the beginning and at the end of the bundle are its thin file.
func (f *File) ThinParts() (first, last int64) {
	last = int64(head.DigestsSize(f.trailer.PayloadSize)) + head.TrailerSize
	return f.trailer.ThinSize() - last, last
}

// verifyHead verifies the launcher and the part head, which is all that a thin file has.
func (f *File) verifyHead(ctx context.Context) error {
	if err := f.checkLauncher(ctx); err != nil {
		return err
	}
	s, err := f.headStream(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	s.Skip(func(Entry) bool { return true })
	if _, _, err = s.Next(); err == io.EOF {
		err = nil
	}
	return err
}
