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

// Reader reads the whole file, from its first byte. It is valid until the file is closed.
func (f *File) Reader() *io.SectionReader { return io.NewSectionReader(f.file, 0, f.Size()) }
