package bundle

import "io"

// Stub reads the install program at the head of the file, without the payload.
// It is valid until the file is closed.
func (f *File) Stub() *io.SectionReader {
	return io.NewSectionReader(f.file, 0, f.PayloadOffset()-headerSize)
}
