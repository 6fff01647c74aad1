package bundle

import (
	"io"

	"airlift/bundle/head"
)

// Launcher reads the launcher at the beginning of the file. The reader is valid until
// the file is closed.
func (f *File) Launcher() *io.SectionReader {
	return io.NewSectionReader(f.file, 0, f.PayloadOffset()-head.HeaderSize)
}

// Reader reads the file, thin or whole, from its first byte. It is valid until the file is closed.
//
// The trailer is the one that Open read, even if the file on disk has changed. All other content is
// compared with the digests in it. So a valid signature of these bytes covers all content that is
// used.
func (f *File) Reader() *io.SectionReader {
	return io.NewSectionReader(&withTrailer{f.file, f.trailer.Encode(), f.Size() - head.TrailerSize}, 0, f.Size())
}

// SameContent reports whether another open file has the same trailer, and so the same content.
func (f *File) SameContent(other *File) bool { return f.trailer == other.trailer }

type withTrailer struct {
	io.ReaderAt
	trailer []byte
	offset  int64 // of the trailer
}

func (w *withTrailer) ReadAt(b []byte, at int64) (int, error) {
	n, err := w.ReaderAt.ReadAt(b, at)
	if from := max(at, w.offset); from < at+int64(n) {
		copy(b[from-at:n], w.trailer[from-w.offset:])
	}
	return n, err
}
